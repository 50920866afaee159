// Prompts that work with one click: chips under the prompt, and cards on the empty canvas.

import { el, find } from "../core/dom.js";
import { skyOf, thingOf } from "./sky.js";

const MAX_CARDS = 6;

export function drawExamples(prompts, run) {
  find("lu-examples").replaceChildren(...prompts.map((prompt) => makeChip(prompt, run)));
  find("lu-cards").replaceChildren(...prompts.slice(0, MAX_CARDS).map((prompt) => makeCard(prompt, run)));
}

function makeChip(prompt, run) {
  const swatch = el("i.lu-swatch", { style: skyOf(prompt) });
  return el(
    "button.lu-chip",
    { type: "button", title: prompt, onclick: () => run(prompt) },
    swatch,
    el("span", {}, prompt),
  );
}

function makeCard(prompt, run) {
  const thing = thingOf(prompt);
  const scene = el(
    "span.lu-card-sky",
    { style: skyOf(prompt), data: thing ? { thing } : {}, "aria-hidden": "true" },
    el("i"),
  );
  return el(
    "button.lu-card",
    { type: "button", onclick: () => run(prompt) },
    scene,
    el("span.lu-card-text", {}, prompt),
  );
}
