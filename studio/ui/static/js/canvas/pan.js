// The enlarged picture nearer and farther: the wheel and two fingers zoom where they point, + and − in the middle;
// dragging and arrow keys move, one button shows pixel for pixel. Not here: the dialog around it (zoom.js).

import { means } from "../core/keymap.js";

const NEAREST = 8; // times the window
const SPEED = 0.0015; // for each pixel of the wheel
const KEY_FACTOR = 1.25;
const KEY_PX = 80;
const STILL_PX = 4; // less is a click that trembles
const ARROWS = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

let at = { scale: 1, x: 0, y: 0 }; // px from the window's middle
let media = null;
let whole = null; // the button
const pointers = new Map(); // id -> where the hand or finger is
let hold = { middle: [0, 0], apart: 0, at }; // as it was when the last of them came or went
let isMoved = false;

export function mountPan(dialog, button) {
  whole = button;
  dialog.addEventListener("wheel", wheel, { passive: false });
  dialog.addEventListener("pointerdown", take);
  dialog.addEventListener("pointermove", move);
  for (const name of ["pointerup", "pointercancel"]) dialog.addEventListener(name, letGo);
  button.addEventListener("click", () => (isWhole() ? fitPicture() : zoomTo(wholeScale(), [0, 0])));
}

/** Begins with a picture that fits the window; a video has controls of its own where people would drag. */
export function panPicture(element) {
  media = element.localName === "img" ? element : null;
  whole.hidden = !media;
  pointers.clear();
  fitPicture();
}

/** Whether a click on the picture was the end of a drag. */
export const wasDragged = () => isMoved;

function fitPicture() {
  at = { scale: 1, x: 0, y: 0 };
  draw();
}

/** At which scale a pixel of the picture is one of the screen. */
const wholeScale = () => (media.naturalWidth || media.offsetWidth) / devicePixelRatio / media.offsetWidth;

const isWhole = () => Math.abs(at.scale / wholeScale() - 1) < 0.001;

function within(scale) {
  const nearest = Math.max(NEAREST, 4 * wholeScale());
  return Math.min(nearest, Math.max(Math.min(1, wholeScale()), scale));
}

const placeOf = ({ clientX, clientY }) => [clientX - innerWidth / 2, clientY - innerHeight / 2];

function wheel(event) {
  if (!media) return;
  event.preventDefault();
  zoomTo(within(at.scale * Math.exp(-SPEED * event.deltaY)), placeOf(event));
}

/** What lies at `place` stays there. */
function zoomTo(scale, place) {
  if (media) bring(scale, { place, from: place, before: at });
}

/**
 * What lay at `from`, where the picture was as `before`, comes to `place`.
 * @param {number} scale
 * @param {{ place: number[], from: number[], before: typeof at }} moved
 */
function bring(scale, { place: [x, y], from: [fromX, fromY], before }) {
  const factor = scale / before.scale;
  at = { scale, x: x - (fromX - before.x) * factor, y: y - (fromY - before.y) * factor };
  draw();
}

/** Keys of the enlarged picture; true when one meant something. Arrows move it only where it is larger than the window. */
export function pressPan(event) {
  if (!media) return false;
  const [x, y] = ARROWS[event.key] ?? [0, 0];
  if (means(event, "nearer")) zoomTo(within(at.scale * KEY_FACTOR), [0, 0]);
  else if (means(event, "farther")) zoomTo(within(at.scale / KEY_FACTOR), [0, 0]);
  else if ((x || y) && room().some((px) => px > 0)) bring(at.scale, { place: [x * KEY_PX, y * KEY_PX], from: [0, 0], before: at });
  else return false;
  return true;
}

/** A hand takes the picture; a finger may lie beside it. */
function take(event) {
  if (!pointers.size) isMoved = false;
  const isOnIt = event.target === media || (event.pointerType === "touch" && event.target === event.currentTarget);
  if (!media || !isOnIt || event.button !== 0) return;
  event.preventDefault(); // or the browser drags the picture as a file
  pointers.set(event.pointerId, placeOf(event));
  event.target.setPointerCapture(event.pointerId);
  holdAnew();
}

function letGo(event) {
  if (pointers.delete(event.pointerId)) holdAnew();
}

function holdAnew() {
  hold = { ...spread(), at };
}

/** The middle of all fingers, and how far apart two of them are; 0 for one. */
function spread() {
  const [one = [0, 0], other = one] = pointers.values();
  const [[x, y], [otherX, otherY]] = [one, other];
  return { middle: [(x + otherX) / 2, (y + otherY) / 2], apart: Math.hypot(x - otherX, y - otherY) };
}

function move(event) {
  if (!pointers.has(event.pointerId)) return;
  pointers.set(event.pointerId, placeOf(event));
  const { middle, apart } = spread();
  if (!isMoved && !apart && Math.hypot(middle[0] - hold.middle[0], middle[1] - hold.middle[1]) < STILL_PX) return;
  isMoved = true;
  const scale = hold.apart ? within((hold.at.scale * apart) / hold.apart) : hold.at.scale;
  bring(scale, { place: middle, from: hold.middle, before: hold.at });
}

/** How far it reaches beyond the window to each side: across, down. */
const room = () =>
  [[media.offsetWidth, innerWidth], [media.offsetHeight, innerHeight]].map(([side, space]) => Math.max(0, (side * at.scale - space) / 2));

/** Never so far that nothing of it is in sight. */
function draw() {
  if (!media) return;
  const [across, down] = room();
  at.x = Math.min(across, Math.max(-across, at.x));
  at.y = Math.min(down, Math.max(-down, at.y));
  media.style.transform = `translate(${at.x}px, ${at.y}px) scale(${at.scale})`;
  media.dataset.near = String(at.scale > 1);
}
