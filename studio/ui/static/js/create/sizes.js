// The size picker: every shape with its proportions, and what it costs now. A shape is one compiled program, so this is
// the one choice that can make people wait; the cards say how long before they choose.

import { arrowsChoose, el, find, keyed, setText } from "../core/dom.js";
import { STATES, seconds, shapeName } from "../core/format.js";
import { state } from "../core/store.js";
import { t, together } from "../core/text.js";
import { estimateWith } from "./estimate.js";

const ART_PX = 30;
const FIRST = 10; // of a long list, those that are shown: models name their usual sizes first
const HINTS = {
  warm: t("size.warmHint"),
  disk: t("size.diskHint"),
  cold: t("size.coldHint"),
};

let showsAll = false;
let drawn = null; // what was drawn last, to draw it again with more or fewer sizes

export function mountSizes(choose) {
  const group = find("lu-sizes");
  arrowsChoose(group);
  group.addEventListener("click", (event) => {
    const card = event.target.closest("[role=radio]");
    if (card) choose(card.dataset.key);
  });
  find("lu-sizes-more").addEventListener("click", () => {
    showsAll = !showsAll;
    if (drawn) drawSizes(...drawn);
  });
}

export function drawSizes(model, chosen, images) {
  drawn = [model, chosen, images];
  const usual = model.shapes.filter((shape, at) => at < FIRST || shape.shape === chosen || shape.state !== "cold");
  const more = find("lu-sizes-more");
  more.hidden = usual.length === model.shapes.length;
  more.setAttribute("aria-expanded", String(showsAll));
  setText(more, showsAll ? t("size.fewer") : t("size.all", { count: model.shapes.length }));
  keyed(find("lu-sizes"), showsAll ? model.shapes : usual, {
    key: (shape) => shape.shape,
    create,
    update: (card, shape) => update(card, shape, chosen),
  });
  const shape = model.shapes.find((one) => one.shape === chosen);
  setText(find("lu-size-hint"), shape ? hintOf(model, shape, images) : "");
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

function hintOf(model, shape, images) {
  const found = estimateWith(model, shape.shape, images);
  const pictures = found ? picturesHint(images.length, found) : "";
  if (!model.is_resident && shape.state !== "warm") {
    const first = t(state.engine?.model ? "size.otherFirst" : "size.loadedFirst");
    const load = model.load_s ? t("size.loadTakes", { time: seconds(model.load_s) }) : "";
    return together(first, load, pictures);
  }
  return pictures || HINTS[shape.state];
}

/** The cards speak of a picture without others beside it. */
function picturesHint(count, { state: cost, warm_s }) {
  return {
    warm: t("size.withWarm", { count }),
    disk: together(t("size.withDisk", { count }), warm_s ? t("size.loadTakes", { time: seconds(warm_s) }) : ""),
    cold: t("size.withCold", { count }),
  }[cost];
}
