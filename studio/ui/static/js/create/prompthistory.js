// The prompts that were queued in this browser, newest first: by arrow up in the prompt, or from a menu.
// Each goes into the field as if it were typed, so that the browser's own undo brings back what stood there.

import { find } from "../core/dom.js";
import { recallJson, remember } from "../core/memory.js";
import { openMenu } from "../core/menu.js";
import { t } from "../core/text.js";

const KEY = "lumesh.prompts";
const MAX_PROMPTS = 50;
const MAX_SHOWN_CHARS = 90; // of a prompt in the menu

let typed = ""; // what stood in the field before somebody went back
let place = -1; // of the shown prompt in the list without `typed`; -1: what was typed
let isFilling = false;

export function rememberPrompt(prompt) {
  const text = prompt.trim();
  if (text) keep([text, ...readPrompts().filter((one) => one !== text)].slice(0, MAX_PROMPTS));
}

export function mountPromptHistory() {
  const field = find("lu-prompt");
  field.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.isComposing) return;
    const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (step && canStep(field, step) && go(field, step)) event.preventDefault();
  });
  field.addEventListener("input", () => {
    if (!isFilling) place = -1;
  });
  const button = find("lu-prompt-history");
  button.addEventListener("click", () => {
    const item = (prompt) => ({ icon: "history", label: shorten(prompt), act: () => fill(field, prompt) });
    openMenu(button, [...readPrompts().map(item), null, { icon: "trash", label: t("create.forget"), act: forget }], t("create.history"));
  });
  drawButton();
}

/** Up from the first line as it is seen, down only through what arrow up brought. */
function canStep(field, step) {
  const { selectionStart: start, selectionEnd: end } = field;
  if (start !== end) return false;
  return step > 0 ? isOnFirstLine(field, start) : place >= 0 && start === 0;
}

/** Long lines wrap, so it is measured: what stands before the caret, in a field like this one. */
function isOnFirstLine(field, caret) {
  if (caret === 0) return true;
  const before = field.value.slice(0, caret);
  if (before.includes("\n")) return false;
  const probe = field.cloneNode();
  for (const name of ["id", "aria-describedby"]) probe.removeAttribute(name);
  const style = getComputedStyle(field);
  const { width, font, letterSpacing, padding } = style;
  Object.assign(probe.style, { position: "absolute", visibility: "hidden", width, font, letterSpacing, padding });
  Object.assign(probe, { rows: 1, value: before, tabIndex: -1 });
  field.after(probe);
  const lines = (probe.scrollHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom)) / parseFloat(style.lineHeight);
  probe.remove();
  return lines < 1.5;
}

/** False at either end. */
function go(field, step) {
  if (place < 0) typed = field.value;
  const prompts = readPrompts().filter((one) => one !== typed.trim());
  const next = place + step;
  if (next < -1 || next >= prompts.length) return false;
  fill(field, next < 0 ? typed : prompts[next]);
  place = next;
  field.setSelectionRange(0, 0); // so that the next press goes on from here
  return true;
}

function fill(field, text) {
  isFilling = true;
  field.focus();
  field.select();
  // The one way to write into a field that its undo knows; it tells the form with an event of its own.
  document.execCommand(text ? "insertText" : "delete", false, text);
  isFilling = false;
  place = -1;
}

function readPrompts() {
  const found = recallJson(KEY, []);
  return Array.isArray(found) ? found.filter((one) => typeof one === "string") : [];
}

function keep(prompts) {
  remember(KEY, JSON.stringify(prompts));
  drawButton();
}

function forget() {
  keep([]);
  find("lu-prompt").focus();
}

function drawButton() {
  find("lu-prompt-history").hidden = !readPrompts().length;
}

const shorten = (text) => (text.length > MAX_SHOWN_CHARS ? `${text.slice(0, MAX_SHOWN_CHARS)}…` : text);
