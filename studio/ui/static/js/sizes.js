// The size picker: every shape with its proportions, and what it costs now. A shape is one compiled program, so this is
// the one choice that can make people wait; the cards say how long before they choose.

import { arrowsChoose, el, find, keyed, setText } from "./dom.js";
import { STATES, seconds, shapeName } from "./format.js";
import { state } from "./store.js";

const ART_PX = 30;
const HINTS = {
  warm: "Compiled and in memory: starts at once.",
  disk: "Compiled before: read from the cache first.",
  cold: "Never compiled here: the first picture takes longer, the next ones do not.",
};

export function mountSizes(choose) {
  const group = find("lu-sizes");
  arrowsChoose(group);
  group.addEventListener("click", (event) => {
    const card = event.target.closest("[role=radio]");
    if (card) choose(card.dataset.key);
  });
}

export function drawSizes(model, chosen) {
  keyed(find("lu-sizes"), model.shapes, {
    key: (shape) => shape.shape,
    create,
    update: (card, shape) => update(card, shape, chosen),
  });
  const shape = model.shapes.find((one) => one.shape === chosen);
  setText(find("lu-size-hint"), shape ? hintOf(model, shape) : "");
}

function create(shape) {
  const name = shape.frames > 1 ? shape.shape.replaceAll("x", "×") : shapeName(shape.shape); // cards are narrow
  const longest = Math.max(shape.width, shape.height);
  const art = el("i", {
    style: { width: `${(ART_PX * shape.width) / longest}px`, height: `${(ART_PX * shape.height) / longest}px` },
  });
  return el(
    "button.lu-size",
    { type: "button", role: "radio" },
    el("span.lu-size-art", { "aria-hidden": "true" }, art),
    el("span", {}, el("span.lu-size-name.lu-num", {}, name), el("span.lu-size-state.lu-num")),
  );
}

function update(card, shape, chosen) {
  const isChosen = shape.shape === chosen;
  card.dataset.state = shape.state;
  card.setAttribute("aria-checked", String(isChosen));
  card.tabIndex = isChosen ? 0 : -1;
  card.title = HINTS[shape.state];
  const cost = shape.seconds === null || shape.seconds === undefined ? "" : ` · ${seconds(shape.seconds)}`;
  setText(card.querySelector(".lu-size-state"), `${STATES[shape.state]}${cost}`);
}

function hintOf(model, shape) {
  if (!model.is_resident && shape.state !== "warm") {
    const load = model.load_s ? ` (${seconds(model.load_s)})` : "";
    return state.engine?.model
      ? `Another model is in memory: this one is loaded first${load}.`
      : `The model is loaded first${load}.`;
  }
  return HINTS[shape.state];
}
