// Says once in each browser that a restart of this server deletes what was made (a Space without storage).

import { find } from "../core/dom.js";
import { recall, remember } from "../core/memory.js";
import { changed, state } from "../core/store.js";

const KEY = "lumesh.ephemeral";

let isDismissed = recall(KEY) !== null;

export function mountEphemeral() {
  find("lu-ephemeral-close").addEventListener("click", () => {
    isDismissed = true;
    remember(KEY, "dismissed");
    changed();
  });
}

export function drawEphemeral() {
  find("lu-ephemeral").hidden = !state.me?.is_ephemeral || isDismissed;
}
