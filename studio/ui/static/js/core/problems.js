// What is wrong at the fields of a form. A message ([data-message]) stands at its field ([data-field]), and the field's
// controls tell it to screen readers too, until somebody changes that field.

import { setText } from "./dom.js";
import { sentence } from "./format.js";

let count = 0;

/** Writes messages, field -> text, at their fields and takes away all others; returns the entries that have no field. */
export function tellProblems(root, messages) {
  const places = messagesOf(root);
  for (const place of places) put(root, place, messages[place.dataset.message] ?? "");
  const known = new Set(places.map(({ dataset }) => dataset.message));
  return Object.entries(messages).filter(([field]) => !known.has(field));
}

export function clearMessage(root, field) {
  for (const place of messagesOf(root)) if (place.dataset.message === field && place.textContent) put(root, place, "");
}

/** Whoever changes a field mends it; `general` is the name of the message that is about no field. */
export function clearOnChange(root, general) {
  const clear = ({ type, target }) => {
    if (type === "click" && !target.closest("[role=radio]")) return;
    const field = target.closest("[data-field]");
    if (!field) return;
    clearMessage(root, field.dataset.field);
    clearMessage(root, general);
  };
  for (const type of ["input", "change", "click"]) root.addEventListener(type, clear);
}

/** Brings whoever sent the form to what is wrong first, in reading order; nothing where all is well. */
export function focusProblem(root) {
  const wrong = [...root.querySelectorAll('[aria-invalid="true"], [data-message]:not(:empty)')];
  const first = wrong.find((element) => element.checkVisibility());
  if (!first) return;
  const field = first.matches("[data-message]") ? fieldOf(root, first) : first;
  const inside = [field?.querySelector("[data-focus]"), field, ...(field?.querySelectorAll("[role=radio], textarea, input, select, button") ?? [])];
  const target = inside.find((element) => element?.matches("button, textarea, input, select") && element.checkVisibility());
  target?.focus({ preventScroll: true });
  (target ?? first).scrollIntoView({ block: "center" });
}

/** Ties a control to a message of its own, or loosens it from it. */
export function markControl(control, message, isWrong) {
  if (!message.id) {
    count += 1;
    message.id = `lu-problem-${count}`;
  }
  const described = new Set((control.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean));
  if (isWrong) described.add(message.id);
  else described.delete(message.id);
  if (described.size) control.setAttribute("aria-describedby", [...described].join(" "));
  else control.removeAttribute("aria-describedby");
  if (isWrong) control.setAttribute("aria-invalid", "true");
  else control.removeAttribute("aria-invalid");
}

const messagesOf = (root) => [...root.querySelectorAll("[data-message]")];

/** A message may stand below its field, where the field has no room for it. */
const fieldOf = (root, place) =>
  root.querySelector(`[data-field="${place.dataset.message}"]`) ?? place.closest("[data-field]");

function put(root, place, message) {
  setText(place, sentence(message));
  const field = fieldOf(root, place);
  if (!field) return;
  field.classList.toggle("lu-wrong", Boolean(message));
  for (const control of controlsOf(field)) markControl(control, place, Boolean(message));
}

/** Those of the field's own name where it has such, as the prompt beside the choice of a style; else all. */
function controlsOf(field) {
  const name = new RegExp(`-${field.dataset.field}(-value)?$`);
  const found = [...field.querySelectorAll("input:not([type=file]), textarea, select, [role=radiogroup]")];
  const controls = found.filter((control) => control.closest("[data-field]") === field);
  const named = controls.filter(({ id }) => name.test(id));
  return named.length ? named : controls;
}
