// The steps' noise levels as a list that somebody writes, instead of their number and spacing. Only some schedulers take it.

import { find } from "../core/dom.js";

const takes = (model, scheduler) => Boolean(model) && model.take_sigmas.includes(scheduler);

/** Numbers with anything but digits and points between them; null for none. */
const parse = (text) => {
  const numbers = (text.match(/\d+(\.\d+)?|\.\d+/g) ?? []).map(Number);
  return numbers.length ? numbers : null;
};

/** What a recipe says of them: they stand for the number of steps, and nothing shifts them. */
export function readSigmas(model, { sigmas, scheduler }) {
  return sigmas && takes(model, scheduler) ? { sigmas, steps: null, flow_shift: null } : { sigmas: null };
}

/** The number of steps that they stand for; a last 0 is none. */
export function countSteps(model, { sigmas, scheduler }) {
  return sigmas && takes(model, scheduler) ? { steps: sigmas.filter(Boolean).length } : {};
}

export function mountSigmas(change) {
  find("lu-sigmas").addEventListener("change", (event) => change({ sigmas: parse(event.currentTarget.value) }));
}

export function drawSigmas(model, { sigmas, scheduler }) {
  const field = find("lu-sigmas");
  field.closest("[data-field]").hidden = !takes(model, scheduler);
  if (field !== document.activeElement) field.value = (sigmas ?? []).join(", ");
}
