// What the page knows, once: panels read it and are called after every change. Events and REST answers go in here.
// Not here: the connection (stream.js), anything visible (one module per panel).

import { recallJson, remember } from "./memory.js";
import { said, saidCard } from "./translate_server.js";

const MAX_JOBS = 200; // as many as one page of the filmstrip can hold without getting slow

/** The reason of jobs that wait because their owner paused (studio/jobs/line/order.py). */
export const PAUSED = "paused";

const NEWS_S = 900; // how long a failed job's card greets whoever opens the page

export const state = {
  connection: "connecting", // connecting, live, lost
  /** @type {number | null} */
  lost_ms: null, // since when it is lost: clocks stop there
  engine: null, // of the worker that the header tells of
  worker: "", // its id
  /** @type {Record<string, number>} */
  workers: {}, // how many there are in each state
  me: null, // who the server takes this visitor for
  models: [],
  opening: null, // the id of the model that a new visitor's page opens with; null until the server knows it
  loras: null, // the files here, with the models that each fits; null: not read yet
  unusableLoras: [], // files of the same folder that no recipe can name, with the reason
  queue: { is_paused: false },
  line_ms: 0, // when the order of waiting jobs last changed: what was asked before tells of the old one
  usage: null, // what one's own jobs have cost so far
  /** @type {Map<string, Job>} */
  jobs: new Map(), // id -> job, with `received_ms` for countdowns and `preview_url` while it runs
  /** @type {Map<string, Job> | null} */
  others: null, // id -> job of somebody else, while an admin looks at the whole line; else null
  /** @type {Map<string, Job>} */
  sheets: new Map(), // a grid's id -> its sheet, as a job that is done: the canvas and the filmstrip show it as one
  isLoaded: false,
  view: { jobId: null, image: null, follows: true },
  editedId: null, // the waiting job whose settings stand in the form
};

let ahead_s = -Infinity; // of this machine's clock, as far as messages of the server tell

/** What the server says as it happens tells its time; of several, the one that came fastest is nearest. */
export function noteServerTime(at_s) {
  ahead_s = Math.max(ahead_s, at_s - Date.now() / 1000);
}

/** Since when a job runs, on this page's own clock; `before` is what was known of it. */
function runningSince(job, before) {
  if (job.state !== "running") return undefined;
  if (before?.state === "running") return before.running_ms;
  const now_s = Date.now() / 1000 + (Number.isFinite(ahead_s) ? ahead_s : 0);
  return performance.now() - 1000 * Math.max(0, job.started_at ? now_s - job.started_at : 0);
}

const listeners = [];
let isScheduled = false;

export function onChange(listener) {
  listeners.push(listener);
}

/** Panels redraw once per frame, however many events came in; a timer, because hidden tabs have no frames. */
export function changed() {
  if (isScheduled) return;
  isScheduled = true;
  setTimeout(() => {
    isScheduled = false;
    for (const listener of listeners) listener(state);
  }, 16);
}

/**
 * As the page shows it: in the visitor's language, and without what lies in the trash, which only the gallery shows.
 * @param {Job} job
 * @returns {Job}
 */
const asShown = (job) => ({
  ...job,
  ...(job.outputs ? { outputs: job.outputs.filter((output) => !output.is_trashed) } : {}),
  ...(job.error ? { error: saidCard(job.error) } : {}),
  ...(job.reason && job.reason !== PAUSED ? { reason: said(job, "reason") } : {}),
});

/**
 * An answer of the server has `asked_ms`: what happened since then, it may not know, and it is left out where an event,
 * a later answer or the page itself has said something of the job meanwhile.
 * @param {Job} job
 */
export function putJob(job) {
  const before = state.jobs.get(job.id);
  if (job.asked_ms < before?.known_ms) return;
  const [known_ms, received_ms] = [job.asked_ms ?? performance.now(), performance.now()];
  const running_ms = runningSince({ ...before, ...job }, before);
  state.jobs.set(job.id, { ...before, ...asShown(withPlace(job, before)), running_ms, known_ms, received_ms });
  if (job.state !== "running" && job.state !== undefined) delete state.jobs.get(job.id).preview_url;
  if (state.view.jobId === job.id && state.view.image >= state.jobs.get(job.id).outputs?.length) state.view.image = null;
  changed();
}

let queueKnown_ms = 0;

/** Whether the queue is paused, as an event tells it now, or as an answer knew it when it was asked for. */
export function putQueue({ is_paused, asked_ms = performance.now() }) {
  if (asked_ms < queueKnown_ms) return;
  queueKnown_ms = asked_ms;
  state.queue = { is_paused };
  changed();
}

let engineKnown_ms = 0;

/** The worker that the header tells of, and how many there are; of its engine an event may have told since. */
export function putHealth({ engine, worker, workers, asked_ms }) {
  if (worker !== state.worker || asked_ms >= engineKnown_ms) {
    state.engine = engine;
    engineKnown_ms = asked_ms;
  }
  state.worker = worker;
  state.workers = workers;
  changed();
}

/** An event of a worker: the header tells of one of them. */
export function putEngine({ worker, engine }) {
  if (worker !== state.worker) return;
  state.engine = engine;
  engineKnown_ms = performance.now();
  changed();
}

/** A job by itself does not know the whole line: what a list said of its place holds until the next one is read. */
function withPlace(job, before) {
  if (job.state !== "queued" || before?.state !== "queued") return job;
  const isListed = job.position !== null && job.position !== undefined;
  if (isListed && !(job.asked_ms < state.line_ms)) return job;
  const { position, reason, eta_s, eta_error_s } = before;
  return { ...job, position, reason, eta_s, eta_error_s };
}

/** @param {Job[]} jobs */
export function replaceJobs(jobs) {
  const before = state.jobs;
  state.jobs = new Map(
    jobs.map((job) => [
      job.id,
      {
        ...asShown(job),
        preview_url: job.state === "running" ? before.get(job.id)?.preview_url : undefined,
        running_ms: runningSince(job, before.get(job.id)),
        known_ms: job.asked_ms,
        received_ms: performance.now(),
      },
    ]),
  );
  state.isLoaded = true;
  changed();
}

/**
 * Of others, what runs and waits.
 * @param {Job[]} jobs
 */
export function putOthers(jobs) {
  const [before, received_ms] = [state.others, performance.now()];
  const isOld = (job) => job.asked_ms < before?.get(job.id)?.known_ms;
  const shown = (job) => ({ ...asShown(job), received_ms, running_ms: runningSince(job) });
  state.others = new Map(jobs.map((job) => [job.id, isOld(job) ? before.get(job.id) : shown(job)]));
  changed();
}

/** The sheet of a grid; what was thrown away leaves the canvas, as outputs of jobs do. */
export function putSheet(output) {
  const { job_id: id, owner, recipe, created_at, width, height } = output;
  if (output.asked_ms < state.sheets.get(id)?.sheet.asked_ms) return;
  const job = {
    id,
    owner,
    created_at,
    finished_at: created_at,
    state: "done",
    sheet: output,
    recipe: { ...recipe, shape: `${width}x${height}`, batch_size: 1 },
    outputs: [output],
  };
  if (output.trashed_at === null) state.sheets.set(id, job);
  else state.sheets.delete(id);
  changed();
}

export function forgetOldJobs() {
  const extra = [...state.jobs.values()]
    .filter((job) => isFinal(job))
    .sort(byEnd)
    .slice(MAX_JOBS);
  for (const job of extra) state.jobs.delete(job.id);
}

/** Everything that it made was thrown away. */
const isEmptied = (job) => job.state === "done" && job.outputs.length === 0;

/** What came of a training stands in the Train view; its last samples are no pictures that somebody asked for. */
const isEndedTraining = (job) => job.kind === "train" && isFinal(job);

export const isFinal = (job) => job.state !== "queued" && job.state !== "running";

const endOf = (job) => job.finished_at ?? job.created_at;
const byEnd = (a, b) => endOf(b) - endOf(a);

/** Several run together where chips make outputs of their own; the first to come is the one that is followed. */
export const runningJobs = () =>
  [...state.jobs.values()].filter((job) => job.state === "running").sort((a, b) => a.created_at - b.created_at);
/** Whether it is worth saying where a job runs or ran. */
export const hasWorkers = () => countWorkers() > 1;
const countWorkers = (without = []) =>
  Object.entries(state.workers).reduce((sum, [name, count]) => (without.includes(name) ? sum : sum + count), 0);
export const livingWorkers = () => countWorkers(["stopped", "restarting"]);
export const runningJob = () => runningJobs()[0] ?? null;
export const waitingJobs = () =>
  [...state.jobs.values()]
    .filter((job) => job.state === "queued")
    .sort((a, b) => (a.position ?? Infinity) - (b.position ?? Infinity) || a.created_at - b.created_at);
/** What the queue lists: one's own line, or everybody's in the order in which it will run. */
export const listedRunning = () => [...runningJobs(), ...othersJobs("running")];
export const listedWaiting = () =>
  [...waitingJobs(), ...othersJobs("queued")].sort((a, b) => (a.position ?? Infinity) - (b.position ?? Infinity));
const othersJobs = (jobState) => [...(state.others?.values() ?? [])].filter((job) => job.state === jobState);

const endedJobs = () =>
  [...state.jobs.values()].filter((job) => isFinal(job) && !isEmptied(job)).sort(byEnd);
export const endedAndSheets = () => [...state.sheets.values(), ...endedJobs()].sort(byEnd);
const doneJobs = () => endedAndSheets().filter((job) => job.state === "done" && !isEndedTraining(job));

/** A waiting job's place in the whole line, others' jobs included; its place among one's own until the server has said. */
export const placeOf = (job) => job.position ?? waitingJobs().findIndex((other) => other.id === job.id) + 1;

export const modelOf = (id) => state.models.find((model) => model.id === id) ?? null;

export const makesVideo = (model) => Boolean(model) && model.defaults.fps !== null;

/** The job on the canvas: the chosen one, else what runs, what waits, or what ended last. */
export function shownJob() {
  const { jobId, follows } = state.view;
  const chosen = follows ? undefined : (state.jobs.get(jobId) ?? state.sheets.get(jobId));
  if (chosen && !isEmptied(chosen) && !isEndedTraining(chosen)) return chosen;
  return runningJob() ?? waitingJobs()[0] ?? endedAndSheets().find(isWorthShowing) ?? null;
}

/** A result always; bad news only while it is news, and until somebody waves it away. */
function isWorthShowing(job) {
  if (isEndedTraining(job)) return false;
  if (job.state === "done") return true;
  const isNews = Date.now() / 1000 - (job.finished_at ?? 0) < NEWS_S;
  return job.state !== "cancelled" && isNews && !isSetAside(job);
}

/** The output of the shown job that actions mean: the focused one, or the only one. */
export function shownOutput() {
  const job = shownJob();
  if (!job?.outputs?.length) return null;
  return job.outputs[state.view.image ?? 0];
}

/** Whether one image of a batch stands alone. */
export const isFocused = (job) => job.state === "done" && !state.view.follows && state.view.image !== null;

export function show(jobId, image = null) {
  state.view = { jobId, image, follows: false };
  changed();
}

export function follow() {
  state.view = { jobId: null, image: null, follows: true };
  changed();
}

/** Filmstrip order, newest first; -1 goes to newer. In a focused batch the images come before the neighbours. */
export function stepView(step) {
  const job = shownJob();
  const { image } = state.view;
  if (job?.state === "done" && image !== null) {
    const next = image + step;
    if (next >= 0 && next < job.outputs.length) return show(job.id, next);
  }
  const strip = filmJobs();
  const place = strip.findIndex((other) => other.id === job?.id);
  const next = strip[place + step];
  if (!next) return undefined;
  return lookAt(next);
}

/** The running job's picture makes room for the next one's; any other stays. */
export const lookAt = (job) => (job.id === runningJob()?.id ? follow() : show(job.id));

/** What the filmstrip shows: what runs, then results. */
export const filmJobs = () => [...runningJobs(), ...doneJobs()];

// A retried job keeps its id, so a dismissed card is remembered with its end.
const DISMISSED = "lumesh.dismissed";
const mark = (job) => `${job.id}@${job.finished_at}`;

const readDismissed = () => recallJson(DISMISSED, []);

/** Tells of many jobs which this visitor has waved away. */
export function whichAreSetAside() {
  const marks = new Set(readDismissed());
  return (job) => marks.has(mark(job));
}

const isSetAside = (job) => whichAreSetAside()(job);

export function setAside(job) {
  remember(DISMISSED, JSON.stringify([mark(job), ...readDismissed()].slice(0, 50)));
  changed();
}

export function dismiss(job) {
  setAside(job);
  follow();
}

/** Whether this visitor sees the System view, and adds what everybody here uses. */
export const isOperator = () => state.me === null || state.me.is_operator;

export const mayTrain = () => state.me?.may_train !== false;

/** Whether this visitor may mark, tag and throw away the output; in a shared gallery others' are only to look at. */
export const isMine = (output) => state.me === null || state.me.is_admin || output.owner === state.me.owner;
