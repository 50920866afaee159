// The trainings: one card each, with its progress, its curve, its samples, and what can be done with it now.
// Not here: the form (form.js), progress in words (core/progress.js).

import { at, continueTraining, pauseTraining, readTraining, readTrainings } from "../core/api.js";
import { el, find, icon, keyed, setStyles, setText } from "../core/dom.js";
import { ago, costText, hasPrice, seconds } from "../core/format.js";
import { fractionOf, progressLine, waitingLine } from "../core/progress.js";
import { isFinal, modelOf, placeOf, putJob, state } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { said } from "../core/translate_server.js";
import { isShown, showView } from "../core/views.js";
import { cancel } from "../create/actions.js";
import { offerUndo, useRecipe } from "../create/controls.js";
import { loadLoras } from "../create/loras.js";
import { drawCurve } from "./curve.js";
import { numbersText } from "./form.js";

const REFRESH_MS = 150; // several events often come at once
const MAX_SHOWN = 24; // samples of one training

/** @type {Map<string, any>} */
const trainings = new Map(); // id -> training; with points and samples once they are read
let isRead = false;
let timer = 0;

/** Reads all of them; the cards in sight are read whole. */
export async function loadTrainings() {
  const { trainings: listed } = await readTrainings();
  for (const id of [...trainings.keys()]) if (!listed.some((one) => one.id === id)) trainings.delete(id);
  for (const one of listed) put(one);
  isRead = true;
  drawTrainings();
  await Promise.all(listed.filter(isInFront).map(({ id }) => look(id)));
}

/** A training that was queued just now: its card has the focus. */
export async function showTraining(id) {
  await look(id);
  const card = find("lu-train-cards").querySelector(`[data-key="${id}"]`);
  card?.scrollIntoView({ block: "start" });
  card?.querySelector("h3")?.focus({ preventScroll: true });
}

async function look(id) {
  put(await readTraining(id));
  drawTrainings();
}

function put(training) {
  trainings.set(training.id, { ...trainings.get(training.id), ...training });
  putJob(training.job);
}

/** An event of a training: a point, a sample, or a saved state. */
export function hearTraining(event) {
  const training = trainings.get(event.job_id);
  if (!training?.points) {
    lookSoon(event.job_id);
    return;
  }
  if (event.kind === "training.step") {
    const { step, loss, learning_rate } = event;
    training.points = [...training.points.filter((one) => one.step < step), { step, loss, learning_rate }];
  } else if (event.kind === "training.sample") {
    const { step, number, prompt, width, height, url } = event;
    const others = training.samples.filter((one) => one.step !== step || one.number !== number);
    training.samples = [...others, { step, number, prompt, width, height, url }];
  } else training.saved_step = event.step;
  if (isShown("train")) drawTrainings();
}

/** A job of the kind `train` changed its state. */
export function noteTraining(job) {
  if (job.kind === "train") lookSoon(job.id);
}

function lookSoon(id) {
  if (!isRead && !isShown("train")) return;
  clearTimeout(timer);
  timer = setTimeout(() => look(id).catch(say), REFRESH_MS);
}

const jobOf = (training) => state.jobs.get(training.id) ?? training.job;

/** What goes on, may go on, or ended last stands above the form; the rest below it. */
function isInFront(training) {
  const { state: jobState } = jobOf(training);
  if (["queued", "running", "paused", "failed", "interrupted"].includes(jobState)) return true;
  return newest()?.id === training.id;
}

const sorted = () => [...trainings.values()].sort((a, b) => b.job.created_at - a.job.created_at);
const newest = () => sorted()[0];

export function drawTrainings() {
  if (!isShown("train")) return;
  const all = sorted();
  const front = all.filter(isInFront);
  const ended = all.filter((training) => !isInFront(training));
  draw(find("lu-train-cards"), front);
  draw(find("lu-train-ended"), ended);
  find("lu-train-earlier").hidden = !ended.length;
}

export function mountTrainings() {
  find("lu-train-earlier").addEventListener("toggle", () => {
    const unread = [...trainings.values()].filter((one) => !isInFront(one) && !one.points);
    Promise.all(unread.map(({ id }) => look(id))).catch(say);
  });
}

export const say = (error) => setText(find("lu-train-message"), error ? together(error.message, error.advice) : "");

const draw = (list, items) => keyed(list, items, { key: ({ id }) => id, create, update });

function create({ id, name }) {
  return el(
    "article.lu-training",
    { "aria-labelledby": `lu-training-${id}` },
    el(
      "div.lu-training-head",
      {},
      el("div.lu-training-words", {}, el("h3", { id: `lu-training-${id}`, tabindex: -1 }, name), el("p.lu-training-facts.lu-num", {})),
      el("div.lu-training-actions", {}),
    ),
    el("p.lu-training-state.lu-num", { role: "status" }),
    el("div.lu-training-bar", { "aria-hidden": "true" }, el("i", {})),
    el("div.lu-training-body", {}, el("div.lu-training-curve", {}), el("div.lu-training-samples", {})),
  );
}

function update(card, training) {
  const job = jobOf(training);
  card.dataset.state = job.state;
  setText(card.querySelector(".lu-training-facts"), factsOf(training));
  setText(card.querySelector(".lu-training-state"), stateText(training, job));
  const bar = card.querySelector(".lu-training-bar");
  bar.hidden = !["running", "paused"].includes(job.state);
  setStyles(bar, { "--done": job.state === "running" ? fractionOf(job) : training.saved_step / job.steps });
  drawActions(card.querySelector(".lu-training-actions"), training, job);
  drawPoints(card.querySelector(".lu-training-curve"), training, job);
  drawSamples(card.querySelector(".lu-training-samples"), training);
}

function factsOf(training) {
  const { model, pictures_count: count, numbers, trigger } = training;
  const word = trigger && t("train.word", { word: trigger });
  return [modelOf(model)?.title ?? model, t("train.count", { count }), word, numbersText(numbers)].filter(Boolean).join(" · ");
}

function stateText(training, job) {
  const when = job.finished_at ? ago(job.finished_at, Date.now() / 1000) : "";
  const cost = hasPrice(job) ? costText(job) : "";
  const took = job.timings?.total_s ? seconds(job.timings.total_s) : "";
  const saved = training.saved_step ? t("train.saved", { step: training.saved_step, steps: job.steps }) : "";
  if (job.state === "running") return training.pause_requested ? t("train.pausing") : progressLine(job);
  if (job.state === "queued") return [waitingLine(job, placeOf(job)), saved].filter(Boolean).join(" · ");
  if (job.state === "done") return [t("state.done"), took, cost, when].filter(Boolean).join(" · ");
  const why = job.error ? together(said(job.error, "detail"), said(job.error, "advice")) : "";
  return [t(`state.${job.state}`), saved, when, why].filter(Boolean).join(" · ");
}

/** @returns {{ key: string, name: string, label: string, isAccent?: boolean, act: () => unknown }[]} */
function actionsOf(training, job) {
  const end = { key: "cancel", name: "close", label: t("common.cancel"), act: () => cancel(job) };
  const pause = { key: "pause", name: "pause", label: t("train.pause"), act: () => change(pauseTraining, training) };
  if (job.state === "queued") return [pause, end];
  if (job.state === "running") return training.pause_requested || job.cancel_requested ? [end] : [pause, end];
  if (job.state === "done") {
    const use = { key: "use", name: "spark", label: t("train.use"), isAccent: true, act: () => useIt(training, job) };
    return training.loras.length ? [use] : [];
  }
  const goOn = { key: "on", name: "play", label: t("train.goOn"), isAccent: true, act: () => change(continueTraining, training) };
  return job.state === "paused" ? [goOn, end] : [goOn];
}

function drawActions(place, training, job) {
  keyed(place, actionsOf(training, job), {
    key: ({ key }) => key,
    create: ({ name, label, isAccent }) =>
      el(
        `button.lu-button${isAccent ? ".lu-accent" : ""}`,
        { type: "button", "aria-label": t("common.named", { name: label, value: training.name }) },
        icon(name),
        el("span", {}, label),
      ),
    update: (button, { act }) => {
      button.onclick = act;
    },
  });
}

async function change(ask, { id }) {
  try {
    put(await ask(id));
    drawTrainings();
  } catch (error) {
    toast(together(error.message, error.advice));
  }
}

/** Opens Create with the model and what it learnt. */
async function useIt({ loras }, job) {
  try {
    await loadLoras();
  } catch (error) {
    toast(together(error.message, error.advice));
    return;
  }
  if (!useRecipe({ ...job.recipe, loras: loras.map((ref) => ({ ref, scale: 1 })) }, null)) {
    toast(t("toast.noModel", { model: job.recipe.model }));
    return;
  }
  showView("create");
  offerUndo(t("train.inUse"));
}

function drawPoints(place, training, job) {
  if (!training.points) return;
  const key = `${training.points.length} ${training.points.at(-1)?.step ?? ""}`;
  if (place.dataset.points === key) return;
  place.dataset.points = key;
  place.hidden = !training.points.length && isFinal(job);
  place.replaceChildren(drawCurve(training.points, job.steps));
}

/** The newest first: that is what people wait for. */
function drawSamples(place, { samples, name }) {
  if (!samples) return;
  place.hidden = !samples.length;
  if (!samples.length) return;
  if (!place.firstElementChild)
    place.append(el("ul.lu-training-strip.lu-scroll", { role: "list", tabindex: 0, "aria-label": t("train.samplesOf", { name }) }));
  const shown = [...samples].sort((a, b) => b.step - a.step || a.number - b.number).slice(0, MAX_SHOWN);
  keyed(place.firstElementChild, shown, {
    key: ({ step, number }) => `${step}-${number}`,
    create: ({ url, step, prompt, width, height }) =>
      el(
        "li",
        {},
        el(
          "figure",
          {},
          el("img", { src: at(url), alt: prompt, width, height, loading: "lazy", decoding: "async" }),
          el("figcaption.lu-num", {}, t("train.atStep", { step })),
        ),
      ),
  });
}
