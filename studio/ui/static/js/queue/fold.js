// The header's button for the queue. On a desk it folds the column away, which is remembered; on narrow screens it opens
// the queue over the page until somebody looks elsewhere.

import { find } from "../core/dom.js";
import { recall, remember } from "../core/memory.js";

const KEY = "lumesh.queue";
const wide = matchMedia("(min-width: 1240px)"); // as layout.css has it

export function mountFold() {
  setFolded(isRemembered());
  find("lu-queue-toggle").addEventListener("click", () => (wide.matches ? fold(!isFolded()) : setOpen(!isOpen())));
  wide.addEventListener("change", tell);
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest?.("#lu-queue, #lu-queue-toggle, #lu-menu")) setOpen(false);
  });
}

/** Over the page, on narrow screens. */
export function setOpen(isOpen) {
  find("lu-queue").dataset.open = String(isOpen);
  tell();
}

export const isOpen = () => find("lu-queue").dataset.open === "true";

const isFolded = () => document.documentElement.dataset.queue === "folded";

function setFolded(is) {
  document.documentElement.dataset.queue = is ? "folded" : "beside";
  tell();
}

function fold(is) {
  setFolded(is);
  remember(KEY, is ? "folded" : "beside");
}

const isRemembered = () => recall(KEY) === "folded";

const tell = () =>
  find("lu-queue-toggle").setAttribute("aria-expanded", String(wide.matches ? !isFolded() : isOpen()));
