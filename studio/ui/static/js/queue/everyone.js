// The whole line, for admins: what others have running and waiting, read while the switch is on.
// Others' jobs stand in the queue alone; canvas, filmstrip and notices are about one's own.

import { at, cancelJob, readEveryonesJobs } from "../core/api.js";
import { find } from "../core/dom.js";
import { parseJson } from "../core/json.js";
import { inOrder } from "../core/order.js";
import { changed, putOthers, state } from "../core/store.js";
import { LINE_KINDS, pickProgress } from "../core/stream.js";
import { toast } from "../core/toasts.js";

const REFRESH_MS = 150; // several events often come at once
const AGAIN_MS = 5000; // after a lost connection

let source = null;
let readTimer = 0;
let againTimer = 0;

export function mountEveryone() {
  find("lu-queue-everyone").addEventListener("click", () => (state.others ? leave() : enter()));
}

export function drawEveryone() {
  const button = find("lu-queue-everyone");
  find("lu-queue-whose").hidden = !(state.me?.is_known && state.me.is_admin);
  button.setAttribute("aria-pressed", String(state.others !== null));
}

/** An admin ends somebody else's job; the list is read anew whatever came of it. */
export async function cancelOthers(job) {
  await cancelJob(job.id).catch((error) => toast(error.detail));
  readSoon();
}

function enter() {
  putOthers([]);
  follow();
  readSoon();
}

function leave() {
  source?.close();
  source = null;
  clearTimeout(againTimer);
  clearTimeout(readTimer);
  state.others = null;
  changed();
}

/** A stream of its own: the page's other one tells of one's own jobs, whatever the queue shows. */
function follow() {
  source?.close();
  source = new EventSource(at("api/v1/events?everyone=true"));
  source.onopen = readSoon;
  source.onerror = () => {
    source?.close();
    againTimer = setTimeout(() => state.others && follow(), AGAIN_MS);
  };
  for (const kind of LINE_KINDS) source.addEventListener(kind, receive);
}

function receive(message) {
  const event = parseJson(message.data);
  const job = state.others?.get(event.job_id);
  if (job && !event.job) {
    const received_ms = performance.now();
    state.others.set(job.id, { ...job, ...pickProgress(event), received_ms, known_ms: received_ms });
    changed();
  } else if (!state.jobs.has(event.job_id) || event.job) readSoon();
}

const readLine = inOrder(() => Promise.all([readEveryonesJobs("running"), readEveryonesJobs("queued")]));

function readSoon() {
  clearTimeout(readTimer);
  readTimer = setTimeout(async () => {
    const lists = await readLine().catch(() => null);
    if (!lists || !state.others) return;
    putOthers(lists.flat().filter((job) => job.owner !== state.me.owner));
  }, REFRESH_MS);
}
