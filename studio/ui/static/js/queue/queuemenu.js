// The queue's menus: what can be done with one job, and with all of them.

import { pauseTraining } from "../core/api.js";
import { openMenu } from "../core/menu.js";
import { isFinal, runningJob, state, waitingJobs } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { cancel, retry, useSettingsOf } from "../create/actions.js";
import { startEdit } from "../create/edit.js";
import { cancelMany, duplicate, failedJobs, moveToEnd, moveToTop, retryFailed } from "./arrange.js";
import { toggleNotification, toggleSound, wants } from "./notify.js";
import { nameOf } from "./titles.js";
import { openWebhook } from "./webhook.js";

/** `look` shows a training. */
export function openJobMenu(anchor, id, look) {
  const job = state.jobs.get(id);
  if (!job) return;
  if (job.kind === "train") {
    openMenu(anchor, itemsOfTraining(job, look), nameOf(job));
    return;
  }
  const copy = { icon: "copy", label: t("queue.duplicate"), act: () => duplicate(job) };
  const use = { icon: "sliders", label: t("queue.useSettings"), act: () => useSettingsOf(job) };
  const end = { icon: "close", label: t("common.cancel"), act: () => cancel(job), isDanger: true };
  const again = { icon: "retry", label: t("queue.retrySame"), act: () => retry(job) };
  openMenu(anchor, itemsOf(job, { copy, use, end, again }), t("common.named", { name: t("queue.job"), value: nameOf(job) }));
}

function itemsOf(job, { copy, use, end, again }) {
  if (job.state === "running") return [copy, use, null, end];
  if (isFinal(job)) return job.state === "done" ? [copy, use] : [again, copy, use];
  return [{ icon: "edit", label: t("queue.edit"), act: () => startEdit(job) }, copy, use, null, ...movesOf(job), end];
}

/** Of a job that waits, with the line below them. */
function movesOf(job) {
  const line = waitingJobs();
  const moves = [
    ...(line[0].id === job.id ? [] : [{ icon: "top", label: t("queue.toFront"), act: () => moveToTop(job) }]),
    ...(line.at(-1).id === job.id ? [] : [{ icon: "bottom", label: t("queue.toEnd"), act: () => moveToEnd(job) }]),
  ];
  return moves.length ? [...moves, null] : [];
}

/** A training is no recipe: it is looked at, paused, gone on with, ended. */
function itemsOfTraining(job, lookAt) {
  const look = { icon: "expand", label: t("train.look"), act: lookAt };
  const goOn = { icon: "play", label: t("train.goOn"), act: () => retry(job) };
  const pause = { icon: "pause", label: t("train.pause"), act: () => pauseTraining(job.id).catch(report) };
  const end = { icon: "close", label: t("common.cancel"), act: () => cancel(job), isDanger: true };
  if (job.state === "queued") return [look, pause, null, ...movesOf(job), end];
  if (!isFinal(job)) return [look, pause, null, end];
  if (job.state === "done") return [look];
  return job.state === "paused" ? [look, goOn, null, end] : [look, goOn];
}

const report = (error) => toast(together(error.message, error.advice));

export function openQueueMenu(anchor) {
  const waiting = waitingJobs().length;
  const failed = failedJobs().length;
  const again = { icon: "retry", label: t("queue.retryFailed", { count: failed }), act: retryFailed };
  const rest = { icon: "close", label: t("queue.cancelWaiting", { count: waiting }), act: () => cancelMany("waiting"), isDanger: true };
  const all = { icon: "stop", label: t("queue.cancelAll"), act: () => cancelMany("all"), isDanger: true };
  const notice = [
    { label: t("notify.wish"), isChecked: wants("notification"), act: toggleNotification },
    { label: t("notify.sound"), isChecked: wants("sound"), act: toggleSound },
    { icon: "share", label: t("hook.open"), act: openWebhook },
  ];
  const groups = [notice, failed > 1 ? [again] : [], [...(waiting ? [rest] : []), ...(waiting || runningJob() ? [all] : [])]];
  openMenu(anchor, groups.filter((group) => group.length).flatMap((group, index) => (index ? [null, ...group] : group)), t("queue.title"));
}
