// Says once in each browser that a restart of this server deletes what was made (a Space without storage).

import { find } from "../core/dom.js";
import { changed, state } from "../core/store.js";

const KEY = "lumesh.ephemeral";

let isDismissed = readDismissed();

export function mountEphemeral() {
  find("lu-ephemeral-close").addEventListener("click", () => {
    isDismissed = true;
    try {
      localStorage.setItem(KEY, "dismissed");
    } catch {
      // Private mode: it comes back with the next visit.
    }
    changed();
  });
}

export function drawEphemeral() {
  find("lu-ephemeral").hidden = !state.me?.is_ephemeral || isDismissed;
}

function readDismissed() {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return false;
  }
}
