// The keyboard. Letters work while nobody is typing; Ctrl+Enter works everywhere.

import { focusPrompt } from "./controls.js";
import { find } from "./dom.js";
import { copyPrompt, download, generate, useAsInput, useSettings } from "./make.js";
import { isOpen, setOpen } from "./queue.js";
import { follow, show, state, stepView } from "./store.js";
import { toggleTheme } from "./theme.js";
import { isZoomed, openZoom } from "./zoom.js";

const LETTERS = {
  "/": focusPrompt,
  d: download,
  u: useSettings,
  i: useAsInput,
  c: copyPrompt,
  t: toggleTheme,
  z: openZoom,
  "?": openKeys,
};

export function mountKeys() {
  find("lu-keys-button").addEventListener("click", openKeys);
  find("lu-keys").addEventListener("click", (event) => {
    if (event.target === find("lu-keys") || event.target.closest("[data-close]")) find("lu-keys").close();
  });
  document.addEventListener("keydown", press);
  if (/Mac|iPhone|iPad/.test(navigator.platform))
    for (const key of document.querySelectorAll("#studio kbd")) key.textContent = key.textContent.replace("Ctrl", "⌘");
}

function openKeys() {
  if (!find("lu-keys").open) find("lu-keys").showModal();
}

function press(event) {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    generate();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape") return escape();
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (isTyping || find("lu-keys").open) return;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (step) {
    event.preventDefault();
    stepView(step);
    return;
  }
  const act = LETTERS[event.key.toLowerCase()];
  if (act && (!isZoomed() || act !== openZoom)) {
    event.preventDefault();
    act();
  }
}

/** One layer a press; dialogs close by themselves. */
function escape() {
  if (isZoomed() || find("lu-keys").open) return;
  if (isOpen()) setOpen(false);
  else if (document.activeElement?.closest?.("#lu-controls")) document.activeElement.blur();
  else if (state.view.image !== null) show(state.view.jobId);
  else follow();
}
