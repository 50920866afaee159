// Two outputs: one over the other with a line to move, or side by side; and which settings they do not share.

import { at, comparePixels } from "../core/api.js";
import { arrowsChoose, el, find, setText } from "../core/dom.js";
import { compareSettings } from "../core/settings.js";
import { t } from "../core/text.js";
import { videoOf } from "../core/video.js";
import { isShown, showView } from "../core/views.js";

const NAMES = ["A", "B"];

let pair = [];
let mode = "slider";
let tell = { close: () => undefined };

export function mountCompare(listeners) {
  tell = listeners;
  find("lu-compare-close").addEventListener("click", () => history.back());
  find("lu-compare-swap").addEventListener("click", () => show([pair[1], pair[0]]));
  arrowsChoose(find("lu-compare-mode"));
  find("lu-compare-mode").addEventListener("click", (event) => {
    const chosen = event.target.closest("[role=radio]")?.dataset.key;
    if (!chosen || chosen === mode) return;
    mode = chosen;
    draw();
  });
}

export const isComparing = () => !find("lu-compare").hidden;

/** Over the gallery: "back" returns to the wall. */
export function openCompare(one, other) {
  history.pushState({}, "");
  open(one, other);
}

/** From any view: "back" returns to that one. */
export function compareFromElsewhere(one, other) {
  if (isShown("gallery")) return openCompare(one, other);
  showView("gallery");
  return open(one, other);
}

/** The older one is A: what changed since is what people look for. */
function open(one, other) {
  find("lu-compare").hidden = false;
  find("lu-detail").inert = true;
  find("lu-gallery-main").inert = true;
  show(one.created_at <= other.created_at ? [one, other] : [other, one]);
  find("lu-compare-title").focus({ preventScroll: true });
}

export function closeCompare() {
  find("lu-compare").hidden = true;
  find("lu-detail").inert = false;
  find("lu-gallery-main").inert = !find("lu-detail").hidden;
  find("lu-compare-stage").replaceChildren();
  tell.close();
}

function show(outputs) {
  pair = outputs;
  draw();
  drawDifferences();
  judge(outputs);
}

/** Whether the pixels are the same: the server has them as they were made. */
async function judge(outputs) {
  const verdict = find("lu-compare-verdict");
  setText(verdict, "");
  try {
    const likeness = await comparePixels(outputs[0].id, outputs[1].id);
    if (outputs === pair) setText(verdict, verdictOf(likeness));
  } catch (error) {
    setText(verdict, error.message);
  }
}

function verdictOf({ same_size, identical, psnr_db }) {
  if (!same_size) return t("compare.sizes");
  return identical ? t("compare.identical") : t("compare.psnr", { decibels: psnr_db });
}

function draw() {
  for (const radio of find("lu-compare-mode").querySelectorAll("button")) {
    radio.setAttribute("aria-checked", String(radio.dataset.key === mode));
    radio.tabIndex = radio.dataset.key === mode ? 0 : -1;
  }
  const stage = find("lu-compare-stage");
  const [one, other] = pair;
  stage.dataset.mode = mode;
  // Both in the frame of the first: equal places lie over each other, whatever the sizes.
  stage.style.setProperty("--ratio", String(one.width / one.height));
  stage.replaceChildren(mode === "slider" ? sliderOf(one, other) : besideOf(one, other));
  playTogether(...stage.querySelectorAll("video"));
}

function mediaOf(output, name) {
  const { recipe } = output;
  return output.kind === "video"
    ? videoOf(output, { recipe })
    : el("img", { src: at(output.url), alt: `${name}: ${recipe.prompt}`, decoding: "async", draggable: "false" });
}

function sliderOf(one, other) {
  const range = el("input", { type: "range", min: 0, max: 100, step: 0.1, value: 50, "aria-label": t("compare.seen") });
  const frame = el(
    "div.lu-slider-frame",
    { style: { "--at": "50%" } },
    mediaOf(other, NAMES[1]),
    el("div.lu-slider-top", {}, mediaOf(one, NAMES[0])),
    el("span.lu-slider-line", { "aria-hidden": "true" }),
    ...badges(),
    range,
  );
  range.addEventListener("input", () => frame.style.setProperty("--at", `${range.value}%`));
  return frame;
}

function besideOf(one, other) {
  const side = (output, name) => el("figure.lu-beside", {}, mediaOf(output, name), el("figcaption", {}, name));
  return el("div.lu-besides", {}, side(one, NAMES[0]), side(other, NAMES[1]));
}

const badges = () => NAMES.map((name) => el(`span.lu-slider-name.lu-slider-${name.toLowerCase()}`, { "aria-hidden": "true" }, name));

/** Two films that start together stay together: the second follows the clock of the first. */
/** @param {HTMLVideoElement[]} videos */
function playTogether(...videos) {
  const [leader, follower] = videos;
  if (!leader || !follower) return;
  leader.addEventListener("timeupdate", () => {
    if (Math.abs(leader.currentTime - follower.currentTime) > 0.1) follower.currentTime = leader.currentTime;
  });
}

function drawDifferences() {
  const rows = compareSettings(...pair);
  const differing = rows.filter(({ differs }) => differs);
  const same = rows.filter(({ differs }) => !differs);
  const row = ({ name, values, differs }) =>
    el(
      "tr",
      { data: { differs: String(differs) } },
      el("th", { scope: "row" }, name),
      ...(differs ? values.map((value) => el("td", {}, value ?? t("compare.none"))) : [el("td", { colspan: 2 }, values[0])]),
    );
  const head = el("tr", {}, el("td"), ...NAMES.map((name) => el("th", { scope: "col" }, name)));
  find("lu-compare-diff").replaceChildren(
    el("h3", {}, el("span", { role: "status" }, differing.length ? t("compare.differ", { count: differing.length }) : t("compare.same"))),
    ...(differing.length ? [el("table", {}, el("thead", {}, head), el("tbody", {}, ...differing.map(row)))] : []),
    ...(same.length
      ? [el("details", {}, el("summary", {}, t("compare.sameCount", { count: same.length })), el("table", {}, el("tbody", {}, ...same.map(row))))]
      : []),
  );
}
