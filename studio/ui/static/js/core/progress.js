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
  // Of a training, whose steps are nearly all of it.
  preparing: [0.1, 0.16],
  training: [0.16, 0.97],
  sampling: [0.16, 0.97],
};
const STEPPING = ["denoising", "training", "sampling"]; // how far these are, the job's steps tell
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

export function fractionOf(job) {
  const [from, to] = SPANS[job.phase] ?? [0, 0];
  const [done, total] = STEPPING.includes(job.phase) ? [job.step, job.steps] : [job.phase_done, job.phase_total];
  return total > 0 ? from + (to - from) * Math.min(1, done / total) : from;
}

/** "Compiling 256 × 256", "Denoising 7/12", "Downloading 312/6940 MB". */
export function phaseText(job) {
  if (job.cancel_requested) return t("progress.cancelling");
  if (!job.phase) return t("progress.starting");
  const name = phaseName(job.phase);
  if (job.phase === "denoising" || job.phase === "training") return `${name} ${job.step}/${job.steps}`;
  const { phase_done: done, phase_total: total, phase_detail: detail } = job;
  if (total > BYTES) return `${name} ${Math.round(done / BYTES)}/${Math.round(total / BYTES)} MB`;
  const what = job.phase === "compiling" ? ` ${shapeName(job.recipe.shape)}` : detail ? ` ${detail}` : "";
  return total > 1 ? `${name}${what} ${done}/${total}` : `${name}${what}`;
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
  if (job.phase === "denoising" || job.phase === "training") return `${t("progress.step", { step: job.step, steps: job.steps })} · ${timeText(job)}`;
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
