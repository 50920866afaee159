// The size picker: every shape with its proportions, and what it costs now. A shape is one compiled program, so this is
// the one choice that can make people wait; the cards say how long before they choose.

import { arrowsChoose, el, find, keyed, setText } from "../core/dom.js";
import { STATES, frameName, lengthName, seconds } from "../core/format.js";
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

const hintsOf = ({ frames }) => (frames > 1 ? { ...HINTS, cold: t("size.coldHintVideo") } : HINTS);

const RUN_HINTS = { warm: "size.runWarm", disk: "size.runDisk", cold: "size.runCold" };

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

/** `run` is what else decides over the programs: the input `images`, `batch_size` and `guidance_scale`; and `fps`. */
export function drawSizes(model, chosen, run) {
  drawn = [model, chosen, run];
  const usual = model.shapes.filter((shape, at) => at < FIRST || shape.shape === chosen || shape.state !== "cold");
  const more = find("lu-sizes-more");
  more.hidden = usual.length === model.shapes.length;
  more.setAttribute("aria-expanded", String(showsAll));
  setText(more, showsAll ? t("size.fewer") : t("size.all", { count: model.shapes.length }));
  keyed(find("lu-sizes"), showsAll ? model.shapes : usual, {
    key: (shape) => shape.shape,
    create,
    update: (card, shape) => update(card, shape, { isChosen: shape.shape === chosen, fps: run.fps, ...costOf(model, shape, run) }),
  });
  const shape = model.shapes.find((one) => one.shape === chosen);
  setText(find("lu-size-hint"), shape ? hintOf(model, shape, run) : "");
}

const isGuided = (scale) => scale > 1;

/** Whether a shape's own state is about such a run. */
const isUsual = (model, { batch_size, guidance_scale }) =>
  batch_size === 1 && isGuided(guidance_scale) === isGuided(model.defaults.guidance_scale);

/** `{state, seconds}` of a size for this many images and this guidance; what the server does not list is not compiled. */
function costOf(model, shape, run) {
  if (isUsual(model, run)) return shape;
  const wanted = (one) => one.batch_size === run.batch_size && one.is_guided === isGuided(run.guidance_scale);
  return shape.variants.find(wanted) ?? { state: "cold", seconds: null };
}

function create(shape) {
  const longest = Math.max(shape.width, shape.height);
  const art = el("i", {
    style: { width: `${(ART_PX * shape.width) / longest}px`, height: `${(ART_PX * shape.height) / longest}px` },
  });
  return el(
    "button.lu-size",
    { type: "button", role: "radio" },
    el("span.lu-size-art", { "aria-hidden": "true" }, art),
    el(
      "span",
      {},
      el("span.lu-size-name.lu-num", {}, frameName(shape.shape)),
      shape.frames > 1 ? el("span.lu-size-length.lu-num") : null,
      el("span.lu-size-state.lu-num"),
    ),
  );
}

function update(card, shape, { isChosen, fps, state: kind, seconds: cost_s }) {
  card.dataset.state = kind;
  card.setAttribute("aria-checked", String(isChosen));
  card.tabIndex = isChosen ? 0 : -1;
  card.title = hintsOf(shape)[kind];
  if (shape.frames > 1) setText(card.querySelector(".lu-size-length"), lengthName(shape.shape, fps));
  const cost = cost_s === null || cost_s === undefined ? "" : ` · ${seconds(cost_s)}`;
  setText(card.querySelector(".lu-size-state"), `${STATES[kind]}${cost}`);
}

function hintOf(model, shape, run) {
  const { images } = run;
  const found = estimateWith(model, shape.shape, run);
  const pictures = found ? picturesHint(images.length, found, shape) : "";
  const { state: kind } = costOf(model, shape, run);
  if (!model.is_resident && kind !== "warm") {
    const first = t(state.engine?.model ? "size.otherFirst" : "size.loadedFirst");
    const load = model.load_s ? t("size.loadTakes", { time: seconds(model.load_s) }) : "";
    return together(first, load, pictures);
  }
  if (pictures) return pictures;
  return isUsual(model, run) ? hintsOf(shape)[kind] : t(RUN_HINTS[kind], { what: nameRun(model, run) });
}

/** "4 images at once without guidance": only what differs from the usual run is named. */
function nameRun(model, { batch_size, guidance_scale }) {
  const what = t(model.defaults.fps === null ? "size.images" : "size.videos", { count: batch_size });
  if (isGuided(guidance_scale) === isGuided(model.defaults.guidance_scale)) return what;
  return t(isGuided(guidance_scale) ? "size.guided" : "size.unguided", { what });
}

/** The cards speak of a picture without others beside it. */
function picturesHint(count, { state: cost, warm_s }, { frames }) {
  return {
    warm: t("size.withWarm", { count }),
    disk: together(t("size.withDisk", { count }), warm_s ? t("size.loadTakes", { time: seconds(warm_s) }) : ""),
    cold: t(frames > 1 ? "size.withColdVideo" : "size.withCold", { count }),
  }[cost];
}
