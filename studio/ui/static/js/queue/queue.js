// What runs, what waits and why, and what ended lately.
// Not here: folding (fold.js), what a card says first (titles.js), moving, holding and clearing (arrange.js), what a job's menu offers (queuemenu.js).

import { at } from "../core/api.js";
import { el, find, focused, icon, keyed, setIcon, setText } from "../core/dom.js";
import { ago, costText, framesIn, hasPrice, tookText, wholeSeconds } from "../core/format.js";
import { mountMenu } from "../core/menu.js";
import { fractionOf, secondsLeft, shortLine, withError } from "../core/progress.js";
import {
  PAUSED,
  endedAndSheets,
  hasWorkers,
  isFinal,
  listedRunning,
  listedWaiting,
  lookAt,
  placeOf,
  runningJobs,
  shownJob,
  state,
  waitingJobs,
} from "../core/store.js";
import { t } from "../core/text.js";
import { cancel, retry } from "../create/actions.js";
import { clearEnded, isCleared, isDragging, mountArrange, togglePause } from "./arrange.js";
import { cancelOthers, drawEveryone, mountEveryone } from "./everyone.js";
import { mountFold, setOpen } from "./fold.js";
import { openJobMenu, openQueueMenu } from "./queuemenu.js";
import { nameOf, titlesOf } from "./titles.js";

const MAX_ENDED = 12;

/**
 * A job with its place in the line, or what stands between jobs.
 * @typedef {{
 *   job?: any,
 *   place?: number,
 *   text?: string,
 *   key?: string,
 *   title?: string,
 *   note?: string,
 *   action?: { label: string, act: () => unknown },
 * }} QueueRow
 */

/** @type {(id: string) => unknown} */
let lookAtTraining = () => undefined;

/** `showTraining(id)` is called when somebody wants to see a training. */
export function mountQueue(showTraining) {
  lookAtTraining = showTraining;
  mountFold();
  find("lu-queue-pause").addEventListener("click", togglePause);
  find("lu-queue-more").addEventListener("click", (event) => openQueueMenu(event.currentTarget));
  mountEveryone();
  mountMenu();
  mountArrange(drawQueue);
  setInterval(() => document.hidden || drawQueue(), 30_000); // "3 min ago" grows older without events
}

export function drawQueue() {
  if (isDragging()) return;
  const running = listedRunning();
  const waiting = listedWaiting();
  const ended = endedAndSheets().filter((job) => !isCleared(job)).slice(0, MAX_ENDED);
  const active = waiting.length + running.length;
  const mine = waitingJobs().length + runningJobs().length;
  setText(find("lu-queue-total"), totalOf(waiting));
  setText(find("lu-queue-badge"), String(mine));
  find("lu-queue-badge").hidden = mine === 0;
  drawPause();
  drawEveryone();
  drawCost();
  const shown = shownJob();
  const isHeld = state.queue.is_paused;
  /** @type {QueueRow[]} */
  const rows = [
    ...(isHeld ? [{ key: "held" }] : []),
    ...(active || isHeld ? [] : [{ key: "empty", note: t("queue.empty") }]),
    ...(running.length ? [{ key: "now", title: t("queue.now") }] : []),
    ...running.map((job) => ({ job })),
    ...(waiting.length ? [{ key: "next", title: t("queue.next") }] : []),
    ...waiting.map((job) => ({ job, place: placeOf(job) })),
    ...(ended.length ? [{ key: "recent", title: t("queue.recent"), action: { label: t("queue.clear"), act: clearEnded } }] : []),
    ...ended.map((job) => ({ job })),
  ];
  const titles = titlesOf([...running, ...waiting, ...ended]);
  for (const row of rows) row.text = titles.get(row.job?.id);
  const list = find("lu-queue-list");
  const kept = list.contains(focused()) ? focused() : null;
  keyed(list, rows, {
    key: (row) => (row.job ? `${row.job.id}-${row.job.state}` : row.key),
    create: (row) => (row.job ? createItem(row) : createNote(row)),
    update: (element, row) => row.job && updateItem(element, row, shown),
  });
  if (kept?.isConnected && kept !== focused()) kept.focus(); // moved elements lose it
}

function totalOf(waiting) {
  if (!waiting.length) return "";
  const last = secondsLeft(waiting.at(-1));
  const count = t("queue.waiting", { count: waiting.length });
  return last === null ? count : `${count} · ${wholeSeconds(last)}`;
}

function drawPause() {
  const button = find("lu-queue-pause");
  const isHeld = state.queue.is_paused;
  setIcon(button, isHeld ? "play" : "pause");
  button.setAttribute("aria-pressed", String(isHeld));
  button.title = t(isHeld ? "queue.resume" : "queue.pauseHint");
}

function drawCost() {
  const line = find("lu-queue-cost");
  line.hidden = !state.usage?.jobs || !hasPrice(state.usage);
  if (!line.hidden) setText(line, t("cost.total", { cost: costText(state.usage) }));
}

/** @param {QueueRow} row */
function createNote({ key, title, note, action }) {
  if (key === "held")
    return el(
      "div.lu-queue-held",
      {},
      el("p", {}, t("queue.held")),
      el("button.lu-button", { type: "button", onclick: togglePause }, icon("play"), el("span", {}, t("queue.resume"))),
    );
  if (note) return el("p.lu-queue-empty", {}, note);
  const button = action && el("button.lu-queue-link", { type: "button", onclick: action.act }, action.label);
  return el("div.lu-queue-group", {}, el("h3", {}, title), button);
}

const isOthers = (job) => Boolean(state.others?.has(job.id));

/** @param {QueueRow} row */
function createItem({ job, text: title }) {
  const isMine = !isOthers(job); // others' jobs keep their place, and are shown nowhere else
  const canMove = isMine && job.state === "queued";
  const openMenu = (event) => openJobMenu(event.currentTarget, job.id, () => lookAtTraining(job.id));
  const button = (name, label, onclick, extra = {}) =>
    el(
      "button.lu-icon-button.lu-queue-action",
      { type: "button", title: label, onclick, ...extra },
      icon(name),
    );
  const quick =
    job.state === "done"
      ? null
      : isFinal(job)
        ? button(job.state === "paused" ? "play" : "retry", againLabel(job), () => retry(job))
        : button("close", t("common.cancel"), () => (isMine ? cancel : cancelOthers)(job));
  return el(
    "div.lu-queue-item",
    { data: { state: job.state, job: job.id, mine: isMine } },
    isMine
      ? el("button.lu-queue-open", { type: "button", onclick: () => open(job) })
      : null,
    canMove
      ? el("button.lu-queue-art.lu-queue-grip", {
          type: "button",
          title: t("queue.drag"),
          "aria-keyshortcuts": "Alt+ArrowUp Alt+ArrowDown",
          onclick: openMenu,
        }, el("span"))
      : el("span.lu-queue-art", { "aria-hidden": "true" }, job.state === "queued" ? el("span") : null),
    el("div.lu-queue-words", {}, el("p.lu-queue-prompt", {}, title), el("p.lu-queue-state")),
    el(
      "div.lu-queue-actions",
      {},
      quick,
      isMine && !job.sheet ? button("more", t("queue.more"), openMenu, { "aria-haspopup": "menu" }) : null,
    ),
    job.state === "running" ? el("div.lu-queue-progress", {}, el("i")) : null,
  );
}

const againLabel = (job) => t(job.kind === "train" ? "train.goOn" : "queue.retry");

function open(job) {
  if (job.kind === "train") lookAtTraining(job.id);
  else lookAt(job);
  setOpen(false);
}

/**
 * @param {HTMLElement} item
 * @param {QueueRow} row
 * @param {any} shown
 */
function updateItem(item, { job, place, text: title }, shown) {
  item.dataset.shown = String(job.id === shown?.id);
  item.dataset.edited = String(job.id === state.editedId);
  item.style.setProperty("--done", fractionOf(job));
  setText(item.querySelector(".lu-queue-prompt"), title);
  item.title = nameOf(job); // whole; of a job that was edited it is another one
  item.querySelector(".lu-queue-open")?.setAttribute("aria-label", title); // what is to be seen is what it is called
  for (const button of item.querySelectorAll(".lu-queue-action"))
    button.setAttribute("aria-label", t("common.named", { name: button.title, value: title }));
  drawArt(item.querySelector(".lu-queue-art"), job, place);
  const line = item.querySelector(".lu-queue-state");
  const text = stateLine(job);
  setText(line, text);
  line.title = text;
}

function drawArt(art, job, place) {
  const picture = job.state === "done" ? at(job.outputs[0]?.thumb_url ?? "") : job.preview_url;
  if (job.state === "queued") {
    setText(art.firstChild, String(place));
    if (art.matches("button")) art.setAttribute("aria-label", t("queue.grip", { place, prompt: nameOf(job) }));
  } else if (picture) {
    const image = art.querySelector("img") ?? el("img", { alt: "", onerror: () => image.replaceWith(icon("spark")) });
    const isStrip = job.state !== "done" && framesIn(job.recipe.shape) > 1; // a preview's frames, side by side
    image.style.objectPosition = isStrip ? "left" : "";
    if (image.src !== picture) image.src = picture;
    if (!image.parentElement) art.replaceChildren(image);
  } else if (!art.firstChild) {
    art.append(icon({ failed: "alert", interrupted: "pause", cancelled: "stop", paused: "pause" }[job.state] ?? "spark"));
  }
}

function stateLine(job) {
  const owner = job.owner === state.me?.owner ? "" : job.owner;
  return [owner, ...factsOf(job)].filter(Boolean).join(" · ");
}

function factsOf(job) {
  if (job.state === "running") return [shortLine(job), hasWorkers() ? job.worker : ""];
  if (job.state === "queued") {
    if (job.cancel_requested) return [t("state.cancelling")];
    const left = secondsLeft(job);
    const wait = left === null ? (job.reason ? "" : t("state.waiting")) : t("queue.in", { time: withError(left, job) });
    return [wait, job.reason === PAUSED ? t("state.paused") : job.reason, imagesOf(job, job.recipe.batch_size)];
  }
  const when = ago(job.finished_at ?? job.created_at, Date.now() / 1000);
  if (job.state !== "done") return [t(`state.${job.state}`), when];
  if (job.sheet) return [t("grid.title"), when];
  return [imagesOf(job, job.outputs.length), tookText(job), when];
}

/** The last samples of a training are no pictures that somebody asked for. */
const imagesOf = ({ kind, recipe }, count) =>
  count > 1 && kind !== "train" ? t(framesIn(recipe.shape) > 1 ? "queue.videos" : "queue.images", { count }) : "";
