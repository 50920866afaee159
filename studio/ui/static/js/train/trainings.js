// The trainings: which there are, and what happens to them, as cards in front of the form or below it.
// Not here: one card (card.js), what can be done with it (actions.js), the form (form.js).

import { readTraining, readTrainings } from "../core/api.js";
import { find, focused, keyed, setText } from "../core/dom.js";
import { isFinal, putJob, state, whichAreSetAside } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { said } from "../core/translate_server.js";
import { isShown } from "../core/views.js";
import { loadLoras } from "../create/loras.js";
import { actionsOf, offerUse } from "./actions.js";
import { createCard, updateCard } from "./card.js";
import { loadChoices } from "./form.js";

const REFRESH_MS = 150; // several events often come at once
const NEWS_S = 86_400; // how long what failed stands above the form: a night and a day

/** @type {Map<string, any>} */
const trainings = new Map(); // id -> training; with points and samples once they are read
/** @type {Map<string, any[]>} */
const missed = new Map(); // id -> events heard since its reading began
/** @type {Map<string, number>} */
const changed_ms = new Map(); // id -> when an event last told of its state, or of what was saved
const told = new Map(); // id -> what was last said of it to those who do not see the cards
const due = new Set(); // ids that are read in a moment
const gone = new Set(); // ids of those that were deleted, of which answers on their way tell nothing
let isRead = false;

/** Reads all of them; the cards in sight are read whole. */
export async function loadTrainings() {
  const { trainings: listed, asked_ms } = await readTrainings();
  for (const { id, known_ms } of [...trainings.values()])
    if (!listed.some((one) => one.id === id) && !(asked_ms < known_ms)) trainings.delete(id); // else it came meanwhile
  for (const one of listed) put({ ...one, asked_ms });
  isRead = true;
  drawTrainings();
  await Promise.all(listFront().map(({ id }) => look(id)));
}

/** After a gap in the events: points, samples and states may lack. */
export function noteTrainingGap() {
  if (isRead) loadTrainings().catch(say);
}

/** The card of one has the focus: it was queued just now, or somebody asked for it. */
export async function showTraining(id) {
  await look(id);
  const card = find("lu-train").querySelector(`.lu-training[data-key="${id}"]`);
  if (card?.closest("details")) find("lu-train-earlier").open = true;
  card?.scrollIntoView({ block: "start" });
  card?.querySelector("h3")?.focus({ preventScroll: true });
}

/** Reads one whole, and what happened to it on the answer's way. */
async function look(id) {
  const since = [];
  missed.set(id, since);
  try {
    const training = await readTraining(id);
    put(training);
    for (const event of since) if (event.id > training.last_event_id) take(event);
  } catch (error) {
    if (!gone.has(id)) throw error;
  } finally {
    if (missed.get(id) === since) missed.delete(id);
  }
  drawTrainings();
}

/** Events and later answers may have overtaken an answer: of what they change it tells nothing then. */
function put(training) {
  const { id, job, asked_ms } = training;
  if (gone.has(id)) return;
  const before = trainings.get(id);
  const isOld = before && asked_ms < Math.max(before.known_ms, changed_ms.get(id) ?? 0);
  const { saved_step, pause_requested, loras } = isOld ? before : training;
  const known_ms = Math.max(asked_ms, before?.known_ms ?? 0);
  trainings.set(id, { ...before, ...training, saved_step, pause_requested, loras, known_ms });
  putJob({ ...job, asked_ms });
}

/** An event of a training: a point, a sample, a saved state, or that it was deleted. */
export function hearTraining(event) {
  if (event.kind === "training.deleted") {
    forget(event.job_id);
    return;
  }
  missed.get(event.job_id)?.push(event);
  const isWhole = take(event);
  const isFreed = event.kind === "training.saved" && !event.step; // its job has a note of it
  if (isWhole) drawTrainings();
  if (!isWhole || isFreed) lookSoon(event.job_id);
}

/** Tells whether the training was read before. */
function take(event) {
  const training = trainings.get(event.job_id);
  if (!training?.points) return false;
  if (event.kind === "training.step") {
    const { step, loss, learning_rate } = event;
    training.points = [...training.points.filter((one) => one.step < step), { step, loss, learning_rate }];
  } else if (event.kind === "training.sample") {
    const { step, number, prompt, width, height, url } = event;
    const others = training.samples.filter((one) => one.step !== step || one.number !== number);
    training.samples = [...others, { step, number, prompt, width, height, url }];
  } else {
    training.saved_step = event.step;
    changed_ms.set(training.id, performance.now());
  }
  return true;
}

/** A job of the kind `train` changed its state. */
export function noteTraining(job) {
  if (job.kind !== "train") return;
  changed_ms.set(job.id, performance.now());
  lookSoon(job.id);
}

/** One ended while the page looks on: whoever is elsewhere learns of it, and what it learnt can be used at once. */
export function noteTrainingEnd(job) {
  const name = job.title;
  if (isShown("train")) loadChoices().catch(() => undefined); // the form is for the next one, which it tells of
  else if (job.state === "done") loadLoras().catch(() => undefined); // they are read again before they are used
  if (job.state === "paused") tellCalmly(t("train.paused", { name }));
  else if (job.state === "cancelled") {
    if (job.started_at) tellCalmly(t("train.cancelled", { name })); // one that waited leaves the line before everybody's eyes
  } else if (job.state === "done") offerUse(job);
  else toast(t("train.failed", { name, title: said(job.error, "title") || t("state.failed") }));
}

/** What somebody asked for: where they see its card, a message would only lie over the buttons to go on with. */
function tellCalmly(text) {
  if (isShown("train")) setText(find("lu-train-live"), text);
  else toast(text);
}

/** Once for all events of a moment, however many follow. */
function lookSoon(id) {
  if ((!isRead && !isShown("train")) || due.has(id) || gone.has(id)) return;
  due.add(id);
  setTimeout(() => {
    due.delete(id);
    if (!gone.has(id)) look(id).catch(say);
  }, REFRESH_MS);
}

function forget(id) {
  gone.add(id);
  for (const known of [trainings, missed, changed_ms, told]) known.delete(id);
  drawTrainings();
  for (const { id: next, points } of listFront()) if (!points) lookSoon(next); // the one before it is the last now
}

const jobOf = (training) => state.jobs.get(training.id) ?? training.job;

/** What goes on, may go on, or ended last stands above the form; the rest, and what was set aside, below it. */
function listFront(all = [...trainings.values()]) {
  const [last, isSetAside] = [endedLast(), whichAreSetAside()];
  return all.filter((training) => {
    const job = jobOf(training);
    if (["queued", "running", "paused"].includes(job.state)) return true;
    if (isSetAside(job)) return false;
    const isNews = Date.now() / 1000 - (job.finished_at ?? 0) < NEWS_S;
    return last === training.id || (isNews && ["failed", "interrupted"].includes(job.state));
  });
}

/** What runs first, then the newest. */
const sorted = () => [...trainings.values()].sort((a, b) => isRunning(b) - isRunning(a) || b.job.created_at - a.job.created_at);
const isRunning = (training) => Number(jobOf(training).state === "running");

function endedLast() {
  const ended = [...trainings.values()].map(jobOf).filter((job) => isFinal(job) && job.state !== "paused");
  return ended.sort((a, b) => b.finished_at - a.finished_at)[0]?.id;
}

export function drawTrainings() {
  if (!isShown("train")) return;
  const all = sorted();
  const front = listFront(all);
  const ended = all.filter((training) => !front.includes(training));
  const kept = keepFocus();
  draw(find("lu-train-cards"), front, true);
  draw(find("lu-train-ended"), ended, false);
  find("lu-train-earlier").hidden = !ended.length;
  kept();
  announce(all);
}

/** What had the focus has it again; what is gone leaves it to its card, and a card that is gone to the view. */
function keepFocus() {
  const before = focused();
  const card = /** @type {HTMLElement | null} */ (before?.closest(".lu-training") ?? null);
  return () => {
    if (!card || focused() === before) return;
    if (before?.isConnected) return before.focus({ preventScroll: true });
    const now = find("lu-train").querySelector(`.lu-training[data-key="${card.dataset.key}"] h3`);
    const isSeen = now && (!now.closest("details") || find("lu-train-earlier").open);
    (isSeen ? now : find("lu-train-title")).focus({ preventScroll: true });
  };
}

function draw(list, items, areInFront) {
  keyed(list, items, {
    key: ({ id }) => id,
    create: (training) => {
      const card = createCard(training);
      if (!areInFront) sight.observe(card);
      return card;
    },
    update: (card, training) => {
      const job = jobOf(training);
      updateCard(card, training, job, actionsOf(training, job, { put: putAndDraw, forget, isInFront: areInFront }));
    },
  });
}

function putAndDraw(training) {
  put(training);
  drawTrainings();
}

/** States and samples as they come; what counts up or down is on the card for those who want to read it. */
function announce(all) {
  const words = { queued: t("state.waiting"), running: t("train.running") }; // a toast tells of an end
  const news = [];
  for (const training of all) {
    const { state: jobState, id } = jobOf(training);
    const step = training.samples ? (training.samples.at(-1)?.step ?? 0) : Infinity; // not read yet
    const before = told.get(id);
    told.set(id, { jobState, step });
    if (!before) continue;
    const text = jobState !== before.jobState ? words[jobState] : step > before.step ? t("train.sampleAt", { step }) : "";
    if (text) news.push(t("common.named", { name: training.name, value: text }));
  }
  if (news.length) setText(find("lu-train-live"), news.join(" "));
}

/** Earlier ones are read whole as they come in sight. */
const sight = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    sight.unobserve(target);
    const { key } = /** @type {HTMLElement} */ (target).dataset;
    if (trainings.has(key) && !trainings.get(key).points) look(key).catch(say);
  }
});

export const say = (error) => setText(find("lu-train-message"), error ? together(error.message, error.advice) : "");
