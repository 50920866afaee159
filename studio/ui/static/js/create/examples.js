// Prompts that work with one click: chips under the prompt, and cards on the empty canvas. A picture on one of them was
// made by this very model, and the click makes it again; a prompt without such a picture stands alone.

import { at } from "../core/api.js";
import { el, find } from "../core/dom.js";

const MAX_CARDS = 6;

/** `run` is called with the example. */
export function drawExamples(examples, run) {
  const chips = examples.map((example) => makeChip(example, run));
  for (const chip of chips.slice(0, MAX_CARDS)) chip.dataset.isCard = "true"; // not shown beside its card
  find("lu-examples").replaceChildren(...chips);
  find("lu-cards").replaceChildren(...examples.slice(0, MAX_CARDS).map((example) => makeCard(example, run)));
}

export function makeChip(example, run) {
  const { prompt } = example;
  return el(
    "button.lu-chip",
    { type: "button", title: prompt, onclick: () => run(example) },
    pictureOf(example, "lu-swatch"),
    el("span", {}, prompt),
  );
}

function makeCard(example, run) {
  return el(
    "button.lu-card",
    { type: "button", onclick: () => run(example) },
    pictureOf(example, "lu-card-picture"),
    el("span.lu-card-text", {}, example.prompt),
  );
}

/** Its prompt stands beside it, so the picture itself says nothing. */
const pictureOf = ({ picture_url }, name) =>
  picture_url && el(`img.${name}`, { src: at(picture_url), alt: "", decoding: "async" });
