// A loss curve: a line for the eye, its ends in words, and a table of a few points for those who do not see it.

import { el } from "../core/dom.js";
import { locale, t } from "../core/text.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 480;
const HEIGHT = 150;
const EDGE = { left: 44, right: 12, top: 10, bottom: 24 };
const ROWS = 8; // of the table
const SMOOTHED = 0.75; // weight of the past in the darker line
const FEW = 5; // points that say what it began with
const OUTLIERS = 0.02; // so many of the points, at each end, may lie outside the scale

const lossText = (loss) => loss.toLocaleString(locale, { minimumSignificantDigits: 2, maximumSignificantDigits: 2 });

/** @param {{ step: number, loss: number }[]} points @param {number} steps */
export function drawCurve(points, steps) {
  const figure = el("figure.lu-curve", {});
  if (points.length < 2) {
    figure.append(el("p.lu-model-note", {}, t("train.curveLater")));
    return figure;
  }
  const smoothed = smooth(points);
  const [low, high] = scaleOf(points, smoothed);
  const span = high - low || 1;
  const x = (step) => EDGE.left + ((WIDTH - EDGE.left - EDGE.right) * step) / steps;
  const y = (loss) => EDGE.top + (HEIGHT - EDGE.top - EDGE.bottom) * (1 - (Math.min(high, Math.max(low, loss)) - low) / span);
  const last = smoothed.at(-1);
  const words = t("train.curve", { from: lossText(startOf(points)), to: lossText(last.loss), step: last.step, steps });
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words });
  for (const loss of [low, high]) {
    svg.append(make("line", { class: "lu-curve-rule", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(loss), y2: y(loss) }));
    svg.append(text(EDGE.left - 6, y(loss) + 4, "end", lossText(loss)));
  }
  svg.append(text(EDGE.left, HEIGHT - 6, "start", "0"), text(WIDTH - EDGE.right, HEIGHT - 6, "end", String(steps)));
  svg.append(line(points.map(({ step, loss }) => [x(step), y(loss)]), "lu-curve-raw"));
  svg.append(line(smoothed.map(({ step, loss }) => [x(step), y(loss)]), "lu-curve-line"));
  svg.append(make("circle", { class: "lu-curve-dot", cx: x(last.step), cy: y(last.loss), r: 3.5 }));
  figure.append(svg, el("figcaption.lu-model-note.lu-num", {}, words), tableOf(points));
  return figure;
}

/** The lowest and the highest loss that is drawn in full: one outlier does not flatten the rest. */
function scaleOf(points, smoothed) {
  const losses = points.map(({ loss }) => loss).sort((a, b) => a - b);
  const cut = Math.floor(OUTLIERS * losses.length);
  const means = smoothed.map(({ loss }) => loss);
  return [Math.min(losses[cut], ...means), Math.max(losses.at(-1 - cut), ...means)];
}

/** What it began with: the mean of a few points, because a single one says little. */
function startOf(points) {
  const few = points.slice(0, Math.min(FEW, Math.ceil(points.length / ROWS)));
  return few.reduce((sum, { loss }) => sum + loss, 0) / few.length;
}

function smooth(points) {
  let mean = startOf(points);
  return points.map(({ step, loss }) => {
    mean = SMOOTHED * mean + (1 - SMOOTHED) * loss;
    return { step, loss: mean };
  });
}

function make(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.append(...children);
  return element;
}

const text = (x, y, anchor, words) => make("text", { x, y, "text-anchor": anchor, "aria-hidden": "true" }, words);

const line = (places, name) =>
  make("polyline", { class: name, points: places.map((place) => place.map((one) => one.toFixed(1)).join(",")).join(" ") });

function tableOf(points) {
  const every = Math.max(1, Math.ceil(points.length / ROWS));
  const shown = points.filter((_, place) => place % every === 0 || place === points.length - 1);
  const row = (cell, ...cells) => el("tr", {}, ...cells.map((one) => el(cell, {}, one)));
  return el(
    "table.lu-sr",
    {},
    el("thead", {}, row("th", t("train.step"), t("train.loss"))),
    el("tbody", {}, ...shown.map(({ step, loss }) => row("td", String(step), lossText(loss)))),
  );
}
