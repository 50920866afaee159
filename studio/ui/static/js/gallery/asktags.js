// The dialog that asks for tags of several outputs at once; those that exist are a press away.

import { el, find, setText } from "../core/dom.js";
import { t } from "../core/text.js";
import { knownTags } from "./filters.js";
import { readTags } from "./output_actions.js";

const KNOWN_SHOWN = 12;

/** @type {(tags: string[]) => void} */
let settle = () => undefined;

export function mountAskTags() {
  const dialog = find("lu-tags");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
  dialog.addEventListener("close", () => {
    settle(dialog.returnValue === "added" ? readTags(find("lu-tags-text").value) : []);
  });
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close("added");
  });
  find("lu-tags-known").addEventListener("click", ({ target }) => {
    if (!target.dataset.tag) return;
    const text = find("lu-tags-text");
    text.value = [...readTags(text.value), target.dataset.tag].join(", ");
    text.focus();
  });
}

/** Resolves to the tags, none when the dialog was closed. */
export function askTags(count) {
  const dialog = find("lu-tags");
  setText(find("lu-tags-title"), t("gallery.tagsOf", { count }));
  find("lu-tags-text").value = "";
  const known = knownTags().slice(0, KNOWN_SHOWN);
  find("lu-tags-known").replaceChildren(
    ...known.map((tag) => el("button.lu-chip", { type: "button", data: { tag } }, tag)),
  );
  dialog.returnValue = "";
  dialog.showModal();
  find("lu-tags-text").focus();
  return new Promise((resolve) => {
    settle = resolve;
  });
}
