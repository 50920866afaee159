// A wall of pictures of which only those in sight exist: a few rows of tiles that move ahead of whoever scrolls.
// Tiles have one size, so where the ten thousandth is needs no measuring. Not here: what a click means (gallery.js).

import { at } from "../core/api.js";
import { el, find, icon } from "../core/dom.js";
import { seconds } from "../core/format.js";
import { t } from "../core/text.js";

const GAP_PX = { wide: 10, narrow: 4 };
const SMALLEST_PX = { wide: 164, narrow: 108 };
const NARROW_PX = 560;
const ROWS_AHEAD = 2;
const FAST_PX_MS = 6; // nobody sees pictures that pass at three screens a second: they are fetched when it slows down
const SETTLED_MS = 90;

/**
 * @type {{
 *   count: () => number,
 *   at: (index: number) => any,
 *   need: (first: number, end: number) => void,
 *   isChosen: (output: any) => boolean,
 * }}
 */
let source = { count: () => 0, at: () => undefined, need: () => undefined, isChosen: () => false };
let tiles = []; // tile number n shows the outputs n, n + tiles.length, ...
let shape = { columns: 1, size: SMALLEST_PX.wide, pitch: SMALLEST_PX.wide };
let current = 0; // the one that Tab reaches
let last = { top: 0, at_ms: 0 };
let settling = 0;
let isScheduled = false;

/** `source` gives `count()`, `at(index)`, `need(first, end)` and `isChosen(output)`. */
export function mountGrid(given) {
  source = given;
  const scroller = find("lu-gallery-scroll");
  scroller.addEventListener("scroll", schedule, { passive: true });
  new ResizeObserver(layOut).observe(scroller);
}

export const currentIndex = () => current;

export function indexOfTile(element) {
  const tile = element.closest?.(".lu-shot");
  return tile ? Number(tile.dataset.index) : null;
}

/** From the beginning. */
export function scrollToTop() {
  find("lu-gallery-scroll").scrollTop = 0;
  current = 0;
}

/** Draws what is in sight anew, also when nothing was scrolled. */
export function drawGrid() {
  find("lu-gallery-grid").style.height = `${Math.ceil(source.count() / shape.columns) * shape.pitch}px`;
  current = Math.max(0, Math.min(current, source.count() - 1));
  draw({ isFast: false });
}

/** Moves the focus by tiles or, with `rows`, by rows. */
export function step({ by = 0, rows = 0 }) {
  const index = current + by + rows * shape.columns;
  if (index >= 0 && index < source.count()) focusTile(index);
}

export function focusTile(index) {
  current = index;
  const scroller = find("lu-gallery-scroll");
  const top = Math.floor(index / shape.columns) * shape.pitch;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top + shape.pitch > scroller.scrollTop + scroller.clientHeight)
    scroller.scrollTop = top + shape.pitch - scroller.clientHeight;
  draw({ isFast: false });
  tileOf(index)?.querySelector(".lu-shot-open").focus({ preventScroll: true });
}

const tileOf = (index) => tiles.find((tile) => Number(tile.dataset.index) === index);

/** As many columns as fit; the tile at the top stays at the top. */
function layOut() {
  const scroller = find("lu-gallery-scroll");
  const style = getComputedStyle(scroller);
  const width = scroller.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  if (width <= 0) return; // the view is not shown
  const kind = width < NARROW_PX ? "narrow" : "wide";
  const first = Math.round(scroller.scrollTop / shape.pitch) * shape.columns;
  const columns = Math.max(2, Math.floor((width + GAP_PX[kind]) / (SMALLEST_PX[kind] + GAP_PX[kind])));
  const size = (width - GAP_PX[kind] * (columns - 1)) / columns;
  shape = { columns, size, pitch: size + GAP_PX[kind] };
  const rows = Math.ceil(scroller.clientHeight / shape.pitch) + 1 + 2 * ROWS_AHEAD;
  makeTiles(rows * columns);
  find("lu-gallery-grid").style.setProperty("--tile", `${size}px`);
  for (const tile of tiles) tile.dataset.index = "-1"; // another place, whatever it showed
  drawGrid();
  scroller.scrollTop = (first / columns) * shape.pitch;
}

function makeTiles(count) {
  while (tiles.length > count) tiles.pop().remove();
  while (tiles.length < count) tiles.push(createTile());
  find("lu-gallery-grid").append(...tiles.filter((tile) => !tile.parentElement));
}

function schedule() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame((now_ms) => {
    isScheduled = false;
    const top = find("lu-gallery-scroll").scrollTop;
    const isFast = Math.abs(top - last.top) > FAST_PX_MS * Math.max(1, now_ms - last.at_ms);
    last = { top, at_ms: now_ms };
    draw({ isFast });
    clearTimeout(settling);
    if (isFast) settling = setTimeout(() => draw({ isFast: false }), SETTLED_MS);
  });
}

function draw({ isFast }) {
  if (!tiles.length) return;
  const scroller = find("lu-gallery-scroll");
  const firstRow = Math.max(0, Math.floor(scroller.scrollTop / shape.pitch) - ROWS_AHEAD);
  const first = firstRow * shape.columns;
  const end = Math.min(first + tiles.length, source.count());
  if (!isFast) source.need(first, end);
  for (let index = first; index < first + tiles.length; index += 1)
    drawTile(tiles[index % tiles.length], index, { isFast });
}

function createTile() {
  const image = el("img", { alt: "", decoding: "async", draggable: "false" });
  image.addEventListener("load", () => (image.dataset.isHere = "true"));
  const button = (name, label, iconName) =>
    el(`button.lu-shot-${name}`, { type: "button", "aria-pressed": "false", "data-label": label }, icon(iconName));
  return el(
    "div.lu-shot",
    { role: "listitem", hidden: true },
    el("button.lu-shot-open", { type: "button" }, image, el("span.lu-shot-length.lu-num")),
    button("choose", t("gallery.select"), "check"),
    button("favourite", t("gallery.favourite"), "star"),
  );
}

function drawTile(tile, index, { isFast }) {
  const isThere = index < source.count();
  const output = isThere ? source.at(index) : undefined;
  if (tile.dataset.index !== String(index)) place(tile, index);
  if (tile.hidden === isThere) tile.hidden = !isThere;
  if (!isThere) return;
  const open = tile.firstElementChild;
  const reach = index === current ? 0 : -1;
  if (open.tabIndex !== reach) for (const button of tile.querySelectorAll("button")) button.tabIndex = reach;
  const shown = output && !isFast ? output.id : "";
  if (tile.dataset.id !== shown) fill(tile, output, shown, index);
  if (output) mark(tile, output);
}

/** Gives the tile to another output; a focus on it would be on something else now. */
function place(tile, index) {
  if (tile.contains(document.activeElement)) find("lu-gallery-scroll").focus({ preventScroll: true });
  tile.dataset.index = index;
  const [row, column] = [Math.floor(index / shape.columns), index % shape.columns];
  tile.style.transform = `translate(${column * shape.pitch}px, ${row * shape.pitch}px)`;
}

function fill(tile, output, shown, index) {
  tile.dataset.id = shown;
  const image = tile.querySelector("img");
  image.removeAttribute("src"); // or the last picture stays until the next has come
  delete image.dataset.isHere;
  tile.setAttribute("aria-posinset", index + 1);
  tile.setAttribute("aria-setsize", source.count());
  const length = tile.querySelector(".lu-shot-length");
  const time = shown && output.kind === "video" ? seconds(output.frames / (output.recipe.fps || 1)) : "";
  length.textContent = time;
  if (!shown) return;
  const { prompt } = output.recipe;
  image.src = at(output.thumb_url);
  tile.firstElementChild.setAttribute("aria-label", time ? t("gallery.video", { time, prompt }) : prompt);
  tile.firstElementChild.title = prompt;
}

function mark(tile, output) {
  tile.dataset.chosen = String(source.isChosen(output));
  press(tile.querySelector(".lu-shot-choose"), source.isChosen(output), output);
  press(tile.querySelector(".lu-shot-favourite"), output.favourite, output);
}

function press(button, isPressed, output) {
  const value = String(isPressed);
  const label = t("common.named", { name: button.dataset.label, value: output.recipe.prompt });
  if (button.getAttribute("aria-pressed") !== value) button.setAttribute("aria-pressed", value);
  if (button.getAttribute("aria-label") !== label) button.setAttribute("aria-label", label);
}
