// Where a job stands, in words and as a fraction. Each line says a phase and a number, never only "please wait".

import { capitalized, shapeName, wholeSeconds } from "./format.js";
import { PAUSED, state } from "./store.js";
import { has, t } from "./text.js";

// How far along a job is when a phase begins and ends. Denoising is what takes long once a shape is warm.
const SPANS = {
  unloading: [0, 0.005],
  downloading: [0.005, 0.04],
  loading: [0.04, 0.08],
  sharding: [0.08, 0.1],
  compiling: [0.1, 0.16],
  encoding: [0.11, 0.115], // while other programs still compile
  denoising: [0.16, 0.92],
  decoding: [0.92, 0.97],
  saving: [0.97, 1],
};
const STEPPING = ["denoising", "training"]; // how far these are, the job's steps tell
const SHAPE = /^\d+x\d+(x\d+)?$/;
const BYTES = 1e6; // totals above this are bytes, not files or steps

/** Nobody knows what passes on a server that is out of reach. */
const now_ms = () => state.lost_ms ?? performance.now();

const elapsed_s = (since_ms) => Math.max(0, now_ms() - since_ms) / 1000;

/** Seconds left now: the last report, counted down. */
export function secondsLeft(job) {
  if (job.eta_s === null || job.eta_s === undefined) return null;
  return Math.max(0, job.eta_s - elapsed_s(job.received_ms));
}

const SHORTEST_S = 0.5; // less than this is no time that anybody waits for

/** "30 s ± 4 s": by how much estimates like this one were wrong before, when that is worth telling. */
export function withError(left, job) {
  const error = job.eta_error_s ?? 0;
  return error < 1 ? wholeSeconds(left) : `${wholeSeconds(left)} ± ${wholeSeconds(error)}`;
}

/** A phase of a job or a plan (pipelines/stages.py) in the visitor's language. */
export const phaseName = (phase) => (has(`phase.${phase}`) ? t(`phase.${phase}`) : capitalized(phase));

/** Of a training the share of its steps, whatever it does between them: they are nearly all of it, and it may go on later. */
export function fractionOf(job) {
  if (job.kind === "train") return job.steps > 0 ? Math.min(1, job.step / job.steps) : 0;
  const [from, to] = SPANS[job.phase] ?? [0, 0];
  const [done, total] = isStepping(job) ? [job.step, job.steps] : [job.phase_done, job.phase_total];
  return total > 0 ? from + (to - from) * Math.min(1, done / total) : from;
}

const isStepping = (job) => STEPPING.includes(job.phase);

/** "Compiling 256 × 256", "Denoising 7/12", "Downloading 312/6940 MB"; once it shall end, what it still does. */
export function phaseText(job) {
  if (!job.cancel_requested) return workText(job);
  return isStepping(job) || !job.phase ? t("progress.cancelling") : t("progress.cancellingAfter", { work: workText(job) });
}

/** What a running training does that somebody wants to pause: what compiles has no steps. */
export const pausingText = (job) =>
  isStepping(job) || !job.phase ? t("train.pausing") : t("train.pausingAfter", { work: workText(job) });

function workText(job) {
  if (!job.phase) return t("progress.starting");
  const name = phaseName(job.phase);
  if (isStepping(job)) return `${name} ${job.step}/${job.steps}`;
  const { phase_done: done, phase_total: total, phase_detail: detail } = job;
  if (total > BYTES) return `${name} ${Math.round(done / BYTES)}/${Math.round(total / BYTES)} MB`;
  const what = job.phase === "compiling" ? compiledFor(job) : detail;
  return [name, what, total > 1 ? `${done}/${total}` : ""].filter(Boolean).join(" ");
}

/** What programs are compiled for; a training has pictures of several sizes, and names the one. */
function compiledFor({ kind, phase_detail: detail, recipe }) {
  if (kind !== "train") return shapeName(recipe.shape);
  return SHAPE.test(detail) ? shapeName(detail) : detail;
}

/** A running job's one clock, always with a word: what is left, or, when that is unknown or was too little, what passed. */
export function timeText(job) {
  const left = secondsLeft(job);
  if (left !== null && left >= SHORTEST_S) return t("progress.left", { time: wholeSeconds(left) });
  return t("progress.passed", { time: wholeSeconds(elapsed_s(job.running_ms ?? now_ms())) });
}

/** For narrow places: "Step 7/12 · 2 s left", "Compiling 7/10 · 3 s passed". */
export function shortLine(job) {
  if (job.cancel_requested) return t("state.cancelling");
  if (isStepping(job)) return `${t("progress.step", { step: job.step, steps: job.steps })} · ${timeText(job)}`;
  const count = job.phase_total > 1 && job.phase_total < BYTES ? ` ${job.phase_done}/${job.phase_total}` : "";
  return `${job.phase ? phaseName(job.phase) : t("progress.starting")}${count} · ${timeText(job)}`;
}

/** The clock comes first: a phone cuts the end off. */
export const progressLine = (job) => `${timeText(job)} · ${phaseText(job)}`;

/** The line of a job that waits, with its place and why it has that place. */
export function waitingLine(job, place) {
  if (job.reason === PAUSED) return t("state.paused");
  const left = secondsLeft(job);
  const where = place === 1 ? t("progress.next") : t("progress.place", { place });
  return left === null ? where : `${where} · ${t("progress.ready", { time: withError(left, job) })}`;
}
