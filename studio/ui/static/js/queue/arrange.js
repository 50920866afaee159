// What people do with their whole line: move by pointer or keys, hold, cancel many, clear.
// The page shows a move at once; the server's answer, or its refusal, follows as events.

import {
  cancelJobs,
  clearJobs,
  duplicateJob,
  moveJob,
  pauseQueue,
  resumeQueue,
  retryJob,
} from "../core/api.js";
import { find, setText } from "../core/dom.js";
import { means } from "../core/keymap.js";
import { recall, remember } from "../core/memory.js";
import { changed, endedAndSheets, putQueue, runningJobs, state, waitingJobs } from "../core/store.js";
import { readJobsAnew } from "../core/stream.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { nameOf } from "./titles.js";

const DRAG_FROM_PX = 4; // less is a click
const EDGE_PX = 36; // this near to the list's end it scrolls
const SCROLL_PX = 10;

let drag = null;
let moving = 0; // moves that the server has not answered yet

/** While somebody holds an item, the list does not redraw under the hand. */
export const isDragging = () => drag !== null;

/** Places the job before another one of the line; null is the end. */
async function moveBefore(job, before) {
  const line = waitingJobs().filter((other) => other.id !== job.id);
  line.splice(before === null ? line.length : line.findIndex((other) => other.id === before), 0, job);
  const positions = waitingJobs().map((other) => other.position);
  line.forEach((other, index) => (state.jobs.get(other.id).position = positions[index]));
  changed();
  setText(find("lu-queue-live"), t("queue.moved", { place: line.indexOf(job) + 1, total: line.length, prompt: nameOf(job) }));
  moving += 1;
  state.line_ms = Infinity; // no answer knows the new order until the server does
  await attempt(() => moveJob(job.id, before));
  moving -= 1;
  if (moving) return;
  state.line_ms = performance.now();
  readJobsAnew();
}

/** One place up (-1) or down (1) in what the list shows. */
function moveBy(job, step) {
  const line = waitingJobs();
  const place = line.findIndex((other) => other.id === job.id);
  const target = place + step;
  if (place < 0 || target < 0 || target >= line.length) return undefined;
  return moveBefore(job, (step < 0 ? line[target] : line[target + 1])?.id ?? null);
}

export const moveToTop = (job) => moveBefore(job, waitingJobs()[0].id);
export const moveToEnd = (job) => moveBefore(job, null);

export async function togglePause() {
  const queue = await attempt(state.queue.is_paused ? resumeQueue : pauseQueue);
  if (queue) putQueue(queue);
}

/** What waited comes back with Undo, in its order; what runs loses its work, so that is asked about. */
export async function cancelMany(scope) {
  const waiting = waitingJobs();
  const running = scope === "all" ? runningJobs().length : 0;
  if (running && !confirm(t("queue.confirmRunning", { count: running }))) return;
  const answer = await attempt(() => cancelJobs(scope));
  if (!answer) return;
  const undo = { label: t("trash.undo"), act: () => attempt(() => queueAgain(waiting, ["cancelled"])) };
  toast(t("queue.cancelled", { count: answer.cancelled }), ...(waiting.length ? [undo] : []));
}

/** Those of the jobs that are in one of these states still; one that cannot be made any more keeps no other back. */
async function queueAgain(jobs, states) {
  let refusal = null;
  const refuse = (error) => {
    if (error.status !== 409) throw error;
    refusal ??= error;
  };
  for (const { id } of jobs) if (states.includes(state.jobs.get(id)?.state)) await retryJob(id).catch(refuse);
  if (refusal) throw refusal;
}

const FAILED = ["failed", "interrupted"];

/** What failed and is listed still, in the order in which it ended. */
export const failedJobs = () => endedAndSheets().filter((job) => FAILED.includes(job.state) && !isCleared(job)).reverse();

export const retryFailed = () => attempt(() => queueAgain(failedJobs(), FAILED));

const CLEARED = "lumesh.sheetsCleared"; // the server clears jobs; a sheet is an output of the gallery

export const isCleared = (job) => (job.sheet ? job.created_at <= Number(recall(CLEARED)) : job.is_cleared);

export function clearEnded() {
  remember(CLEARED, String(Math.max(0, ...[...state.sheets.values()].map(({ created_at }) => created_at))));
  changed();
  return attempt(clearJobs);
}

export async function duplicate(job) {
  if (await attempt(() => duplicateJob(job.id))) toast(t("queue.duplicated"));
}

/** A refusal becomes a message, and the list shows what is. */
async function attempt(ask) {
  const list = find("lu-queue-list");
  list.setAttribute("aria-busy", "true");
  try {
    return await ask();
  } catch (error) {
    toast(together(error.detail, error.advice));
    readJobsAnew();
    return null;
  } finally {
    list.removeAttribute("aria-busy");
  }
}

/** `onDrop` redraws the list. */
export function mountArrange(onDrop) {
  const list = find("lu-queue-list");
  list.addEventListener("pointerdown", (event) => {
    const grip = event.target.closest(".lu-queue-grip");
    if (grip && event.button === 0) take(grip, event);
  });
  list.addEventListener("pointermove", (event) => drag && follow(event));
  for (const name of ["pointerup", "pointercancel"])
    list.addEventListener(name, (event) => drag && drop(event.type === "pointerup", onDrop));
  // A drag ends over its own grip: that is no click.
  list.addEventListener("click", (event) => swallowsClick && event.stopPropagation(), { capture: true });
  list.addEventListener("keydown", pressKey);
}

let swallowsClick = false;

function pressKey(event) {
  if (event.key === "Escape" && drag) {
    event.stopPropagation();
    drop(false, changed);
    return;
  }
  const onGrip = event.target.closest(".lu-queue-grip") && { ArrowUp: -1, ArrowDown: 1 }[event.key];
  const step = means(event, "jobUp") ? -1 : means(event, "jobDown") ? 1 : onGrip;
  const item = event.target.closest(".lu-queue-item[data-state=queued][data-mine=true]");
  if (!step || !item) return;
  event.preventDefault();
  event.stopPropagation();
  moveBy(state.jobs.get(item.dataset.job), step);
}

function take(grip, event) {
  const item = grip.closest(".lu-queue-item");
  const items = [...find("lu-queue-list").querySelectorAll(".lu-queue-item[data-state=queued][data-mine=true]")];
  swallowsClick = false;
  drag = {
    item,
    items,
    from: items.indexOf(item),
    to: items.indexOf(item),
    startY: event.clientY,
    startScroll: find("lu-queue-list").scrollTop,
    middles: items.map((one) => one.offsetTop + one.offsetHeight / 2),
    height: item.offsetHeight,
    isMoving: false,
  };
  grip.setPointerCapture(event.pointerId);
}

function follow(event) {
  const list = find("lu-queue-list");
  if (!drag.isMoving && Math.abs(event.clientY - drag.startY) < DRAG_FROM_PX) return;
  drag.isMoving = true;
  drag.item.dataset.dragged = "true";
  const box = list.getBoundingClientRect();
  if (event.clientY < box.top + EDGE_PX) list.scrollTop -= SCROLL_PX;
  else if (event.clientY > box.bottom - EDGE_PX) list.scrollTop += SCROLL_PX;
  const moved = event.clientY - drag.startY + list.scrollTop - drag.startScroll;
  const middle = drag.middles[drag.from] + moved;
  drag.to = drag.middles.filter((other, index) => index !== drag.from && other < middle).length;
  drag.items.forEach((one, index) => {
    const isBetween = index > drag.from ? index <= drag.to : index < drag.from && index >= drag.to;
    const shift = index === drag.from ? moved : isBetween ? (index > drag.from ? -drag.height : drag.height) : 0;
    one.style.transform = shift ? `translateY(${shift}px)` : "";
  });
}

function drop(isMeant, redraw) {
  const { item, items, from, to, isMoving } = drag;
  for (const one of items) one.style.transform = "";
  delete item.dataset.dragged;
  drag = null;
  swallowsClick = isMoving;
  setTimeout(() => (swallowsClick = false)); // a click comes at once, or not at all
  const job = state.jobs.get(item.dataset.job);
  const rest = items.filter((one) => one !== item);
  if (isMeant && isMoving && to !== from && job?.state === "queued") moveBefore(job, rest[to]?.dataset.job ?? null);
  redraw();
}
