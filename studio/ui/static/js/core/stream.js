// The one connection of this tab: events in, with everything read anew after a gap.

import {
  at,
  previewPath,
  readGrids,
  readHealth,
  readJob,
  readJobs,
  readMe,
  readModels,
  readOutput,
  readQueue,
  readTraining,
  readUsage,
} from "./api.js";
import { parseJson } from "./json.js";
import {
  changed,
  forgetOldJobs,
  isFinal,
  noteServerTime,
  putEngine,
  putHealth,
  putJob,
  putQueue,
  putSheet,
  replaceJobs,
  runningJobs,
  state,
} from "./store.js";

/** What moves a line of jobs. */
export const LINE_KINDS = ["job.queued", "job.phase", "job.step", "job.done", "job.failed", "job.cancelled", "job.paused", "queue.changed"];
const KINDS = [
  ...LINE_KINDS,
  "job.preview",
  "training.step",
  "training.sample",
  "training.saved",
  "training.deleted",
  "grid.done",
  "engine.state",
  "outputs.changed",
];
const RETRY_MS = 1500;
const MAX_SHEETS = 5; // of grids that ended lately
const REFRESH_MS = 150; // several events often come at once
const OTHERS_MS = 5000; // who joins before one's own jobs is no event of this page
const TRUSTED_HIDDEN_MS = 20_000;

let source = null;
let lastId = 0;
let attempt = 0;
let retryTimer = 0;
let modelsTimer = 0;
let waitingTimer = 0;
let jobsTimer = 0;
let usageTimer = 0;
let workersTimer = 0;
/** @type {(job: any) => unknown} */
let tellEnd = () => undefined;
/** @type {(event: any) => unknown} */
let tellTraining = () => undefined;
/** @type {(job: any) => unknown} */
let tellTrainingChange = () => undefined;
/** @type {(grid: any) => unknown} */
let tellGrid = () => undefined;
/** @type {(event: any) => unknown} */
let tellOutputs = () => undefined;

/** @type {() => unknown} */
let tellGap = () => undefined;

/** `listener()` is called after a gap in the events: what it knows from events alone may have changed meanwhile. */
export function onGap(listener) {
  tellGap = listener;
}

/** `listener(event)` is called with every point, sample and saved state of a training, and when one is deleted. */
export function onTraining(listener) {
  tellTraining = listener;
}

/** `listener(job)` is called when a training changes its state. */
export function onTrainingChange(listener) {
  tellTrainingChange = listener;
}

/** `listener(job)` is called when a job ends while this page looks on. */
export function onEnd(listener) {
  tellEnd = listener;
}

/** `listener(grid)` is called when all cells of a grid have ended; it has its sheet as `output`, or null. */
export function onGrid(listener) {
  tellGrid = listener;
}

/** `listener({ids, job_ids, change})` is called when outputs were marked, thrown away, restored or deleted, here or elsewhere. */
export function onOutputs(listener) {
  tellOutputs = listener;
}

/** Reads the present, then follows from there; starts over whenever the server was gone. */
export async function connect() {
  attempt += 1;
  const mine = attempt; // a later call takes over: never two streams in one tab
  const before = state.isLoaded ? new Map(state.jobs) : null;
  source?.close();
  clearTimeout(retryTimer);
  let answers;
  try {
    answers = await readAll();
  } catch (error) {
    if (error.status === 401) location.reload(); // the session is over; the server shows its login page
    else if (mine === attempt) lose();
    return;
  }
  if (mine !== attempt) return;
  putAll(answers);
  if (before) tellMissed(before);
  source = new EventSource(at(`api/v1/events?after=${lastId}`));
  source.onopen = () => setConnection("live");
  source.onerror = lose;
  for (const kind of KINDS) source.addEventListener(kind, (message) => receive(kind, message));
}

/** What the events of a gap would have told. */
function tellMissed(before) {
  for (const job of state.jobs.values()) if (isFinal(job) && before.has(job.id) && !isFinal(before.get(job.id))) tellEnd(job);
  tellGap();
}

/** The browser would reconnect by itself, but not after a proxy's 502, and not with a fresh look at the jobs. */
function lose() {
  source?.close();
  setConnection("lost");
  retryTimer = setTimeout(connect, RETRY_MS);
}

async function readAll() {
  const health = await readHealth(); // first: what happens after its event id comes again through the stream
  const [me, models, queue, jobs] = await Promise.all([readMe(), readModels(), readQueue(), readEveryJob()]);
  return { health, me, models, queue, jobs };
}

function putAll({ health, me, models, queue, jobs }) {
  refreshUsage();
  state.me = me;
  putHealth(health);
  state.models = models.models;
  state.opening = models.default;
  putQueue(queue);
  noteServerTime(health.engine.heartbeat_at);
  lastId = health.last_event_id;
  replaceJobs(jobs);
  readSheets();
  // Who joins late sees the last preview at once; a "v" of its own, or the browser would show an older one.
  for (const { id, kind, step } of runningJobs())
    if (kind === "train") showLastSample(id);
    else if (step > 0) putJob({ id, preview_url: at(`${previewPath(id)}?v=joined-${lastId}`) });
}

/** A training has a picture to show from its first sample on, long after its first step. */
async function showLastSample(id) {
  const training = await readTraining(id).catch(() => null); // deleted meanwhile, or the stream notices a lost server
  const sample = training?.samples.at(-1);
  if (sample && state.jobs.get(id)?.state === "running") putJob({ id, preview_url: at(sample.url) });
}

const readSheet = (id) => readOutput(id).then(putSheet, () => undefined); // the gallery has it as well

async function readSheets() {
  const { grids } = await readGrids(MAX_SHEETS).catch(() => ({ grids: [] }));
  state.sheets = new Map();
  for (const { output_id } of grids) if (output_id) readSheet(output_id);
}

/** The newest jobs, and everything that runs or waits, however long ago it was asked for. */
async function readEveryJob() {
  const lists = await Promise.all([readJobs(), readJobs("queued"), readJobs("running")]);
  return lists.flat();
}

/** After a change of the whole line, of which events of single jobs say nothing. */
export function readJobsAnew() {
  clearTimeout(jobsTimer);
  jobsTimer = setTimeout(async () => {
    const jobs = await readEveryJob().catch(() => null); // the stream notices a lost server
    for (const job of jobs ?? []) if (state.jobs.has(job.id)) putJob(job);
  }, REFRESH_MS);
}

function receive(kind, message) {
  const event = parseJson(message.data);
  lastId = event.id;
  noteServerTime(event.at);
  if (kind === "queue.changed") {
    putQueue({ is_paused: event.is_paused });
    state.line_ms = Math.max(state.line_ms, performance.now());
    readJobsAnew();
    return;
  }
  if (kind === "grid.done") {
    if (event.grid.output) readSheet(event.grid.output.id);
    tellGrid(event.grid);
    return;
  }
  if (kind.startsWith("training.")) {
    tellTraining(event);
    if (kind === "training.deleted") readJobsAnew();
    return;
  }
  if (kind === "outputs.changed") {
    tellOutputs(event);
    return;
  }
  if (kind === "engine.state") {
    putEngine(event);
    refreshWorkers();
    refreshModels();
    refreshWaiting(); // somebody's job began or ended
    return;
  }
  if (event.job) {
    putJob(event.job);
    if (event.job.kind === "train") tellTrainingChange(event.job);
    refreshWaiting();
    if (isFinal(event.job)) {
      tellEnd(event.job);
      refreshUsage();
    }
    if (kind === "job.done") {
      refreshModels(); // seconds were measured, shapes became warm
      forgetOldJobs();
    }
    return;
  }
  const job = state.jobs.get(event.job_id);
  if (!job) readJob(event.job_id).then(putJob, () => undefined);
  else if (kind === "job.preview") putJob({ id: job.id, preview_url: at(event.url) });
  else putJob({ id: job.id, ...pickProgress(event) });
}

/** What an event of a running job says of it. */
export function pickProgress({ state: jobState, phase, phase_done, phase_total, phase_detail, step, steps, eta_s }) {
  return { state: jobState, phase, phase_done, phase_total, phase_detail, step, steps, eta_s };
}

/** Places and waits of everybody in line change with every job that joins or ends. */
function refreshWaiting() {
  clearTimeout(waitingTimer);
  waitingTimer = setTimeout(async () => {
    if (![...state.jobs.values()].some((job) => job.state === "queued")) return;
    const jobs = await readJobs("queued").catch(() => []);
    for (const job of jobs) if (state.jobs.get(job.id)?.state === "queued") putJob(job);
  }, REFRESH_MS);
}

setInterval(() => {
  if (state.me?.is_known && state.connection === "live" && !document.hidden) refreshWaiting();
}, OTHERS_MS);

/** With several workers an event of one says little of all. */
function refreshWorkers() {
  clearTimeout(workersTimer);
  workersTimer = setTimeout(async () => {
    const health = await readHealth().catch(() => null); // the stream notices a lost server
    if (!health) return;
    putHealth(health);
  }, REFRESH_MS);
}

function refreshModels() {
  clearTimeout(modelsTimer);
  modelsTimer = setTimeout(() => {
    loadModels().catch(() => {}); // the stream notices a lost server
  }, REFRESH_MS);
}

/** Asks for the models as they are now. */
export async function loadModels() {
  const models = await readModels();
  state.models = models.models;
  state.opening = models.default;
  changed();
}

function refreshUsage() {
  clearTimeout(usageTimer);
  usageTimer = setTimeout(async () => {
    const usage = await readUsage().catch(() => null);
    if (!usage) return;
    state.usage = usage.mine;
    changed();
  }, REFRESH_MS);
}

function setConnection(connection) {
  if (state.connection === connection) return;
  state.connection = connection;
  state.lost_ms = connection === "lost" ? performance.now() : null;
  changed();
}

// A phone that slept keeps a dead connection open for minutes; a tab that comes back asks instead of trusting it.
let hiddenAt_ms = 0;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) hiddenAt_ms = Date.now();
  else if (state.connection === "live" && Date.now() - hiddenAt_ms > TRUSTED_HIDDEN_MS) connect();
});

// Whoever puts a folder into models/ does it in another window.
addEventListener("focus", () => state.connection === "live" && refreshModels());
