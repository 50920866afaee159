// Telling people on their own device: a notification and a sound when the last of their jobs has ended.
// One message for a whole line of jobs, and none while somebody looks at the page. The tab's title is canvas.js.
// Phones have no notifications of a page, only those of a service worker (serviceworker.js).

import { at } from "../core/api.js";
import { framesIn } from "../core/format.js";
import { recallJson, remember } from "../core/memory.js";
import { runningJob, state, waitingJobs } from "../core/store.js";
import { t } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { nameOf } from "./titles.js";

const KEY = "lumesh.notify";
const NOTES_HZ = [659.3, 987.8]; // e and b: a bright fifth
const NOTE_S = 0.16;
const LOUDNESS = 0.12;

let ended = []; // jobs since the last message
let audio = null;

export const wants = (what) => Boolean(readWishes()[what]);

export async function toggleNotification() {
  if (wants("notification")) {
    keepWish("notification", false);
    return;
  }
  const refusal = await askPermission();
  if (refusal) toast(refusal);
  else keepWish("notification", true);
}

export function toggleSound() {
  keepWish("sound", !wants("sound"));
  if (wants("sound")) play(); // so that people know it, and browsers allow it later
}

/** Called for every job that ends. */
export function noteEnd(job) {
  ended.push(job);
  const goesOn = runningJob() !== null || (waitingJobs().length > 0 && !state.queue.is_paused);
  if (goesOn) return;
  const jobs = ended.filter((one) => one.state !== "cancelled");
  ended = [];
  if (!jobs.length) return;
  if (wants("sound")) play();
  if (wants("notification") && document.hidden) show(jobs);
}

async function askPermission() {
  if (!("Notification" in window)) return t("notify.unsupported");
  if (!window.isSecureContext) return t("notify.insecure");
  const permission = await Notification.requestPermission();
  return permission === "granted" ? "" : t("notify.refused");
}

async function show(jobs) {
  const failed = jobs.filter((job) => job.state !== "done");
  const last = jobs.at(-1);
  const title = titleOf(jobs, failed.length);
  const options = {
    body: nameOf(last).slice(0, 120),
    icon: last.outputs?.[0] ? at(last.outputs[0].thumb_url) : undefined,
    tag: "lumesh",
  };
  if (showFromPage(title, options)) return;
  try {
    await showFromWorker(title, options);
  } catch {
    keepWish("notification", false);
    whenSeen(() => toast(t("notify.unsupported")));
  }
}

/** False where the browser has no notifications of pages: Android's Chrome throws. */
function showFromPage(title, options) {
  try {
    const notification = new Notification(title, options);
    notification.onclick = () => {
      window.focus();
      notification.close();
    };
    return true;
  } catch {
    return false;
  }
}

async function showFromWorker(title, options) {
  await navigator.serviceWorker.register(at("service-worker.js"), { scope: at(".") });
  const registration = await navigator.serviceWorker.ready;
  await registration.showNotification(title, options);
}

/** At once, or when somebody comes back to the page. */
function whenSeen(act) {
  if (!document.hidden) return act();
  return document.addEventListener("visibilitychange", act, { once: true });
}

function titleOf(jobs, failed) {
  const count = jobs.length;
  const isVideo = framesIn(jobs[0].recipe.shape) > 1;
  if (count === 1 && jobs[0].kind === "train" && !failed) return t("notify.trained");
  if (count === 1) return t(failed ? "notify.failed" : isVideo ? "notify.readyVideo" : "notify.ready");
  const done = count - failed;
  const counts = [done && t("notify.doneCount", { count: done }), failed && t("notify.failedCount", { count: failed })];
  return counts.filter(Boolean).join(", ");
}

function play() {
  audio ??= new AudioContext();
  audio.resume();
  NOTES_HZ.forEach((frequency, index) => {
    const start = audio.currentTime + index * NOTE_S;
    const volume = new GainNode(audio, { gain: 0 });
    const tone = new OscillatorNode(audio, { frequency, type: "sine" });
    volume.gain.setValueAtTime(0, start);
    volume.gain.linearRampToValueAtTime(LOUDNESS, start + 0.02);
    volume.gain.exponentialRampToValueAtTime(0.0001, start + 2 * NOTE_S);
    tone.connect(volume).connect(audio.destination);
    tone.start(start);
    tone.stop(start + 2 * NOTE_S);
  });
}

function readWishes() {
  return recallJson(KEY, {});
}

function keepWish(what, isWanted) {
  if (!remember(KEY, JSON.stringify({ ...readWishes(), [what]: isWanted }))) toast(t("notify.notKept"));
}
