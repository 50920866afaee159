// What people do with finished outputs: mark, tag, throw away, take back, delete for ever, download many at once.
// The list and the other views follow. Functions that ask first resolve to false when the answer was no.

import { at, changeOutput, purgeOutputs, readJob, readOutput, restoreOutputs, submitJob, trashOutputs, zipPath } from "../core/api.js";
import { el } from "../core/dom.js";
import { isMine, putJob, putSheet, state } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { putBack, replaceOutput, search, takeOut } from "./outputs.js";

const idsOf = (outputs) => outputs.map(({ id }) => id);

/** In a shared gallery others' outputs are passed over; when there are only such, that is said. */
function mineOf(outputs) {
  const mine = outputs.filter(isMine);
  if (!mine.length) throw new Error(t("gallery.notYours"));
  return mine;
}

/** @type {Map<string, number>} */
const own = new Map(); // id -> changes of this page that the server has yet to tell it of, too: several may be under way

/** Never below none: what the server told of may have been another page's change of the same. */
const count = (id, more) => own.set(id, Math.max(0, (own.get(id) ?? 0) + more));

/** Which of these outputs another page changed. */
export const changedElsewhere = (ids) =>
  ids.filter((id) => {
    if (!own.get(id)) return true;
    count(id, -1);
    return false;
  });

/** `change(ids)` resolves to the ids that did change. */
async function changeHere(outputs, change) {
  const ids = idsOf(outputs);
  for (const id of ids) count(id, 1);
  let changed = [];
  try {
    changed = await change(ids);
  } finally {
    for (const id of ids) if (!changed.includes(id)) count(id, -1);
  }
}

const changeOne = (output, change) =>
  changeHere([output], async ([id]) => {
    const isTaken = replaceOutput(await changeOutput(id, change));
    if (!isTaken) readOutput(id).then(replaceOutput, () => undefined); // what overtook it may not know of the change
    return [id];
  });

export async function mark(outputs, favourite) {
  const mine = mineOf(outputs);
  for (const output of mine) await changeOne(output, { favourite });
  refreshJobs(mine.map(({ job_id }) => job_id));
}

export const setTags = (output, tags) => changeOne(output, { tags });

/** Adds tags to all of them. */
export async function tag(chosen, tags) {
  const outputs = mineOf(chosen);
  for (const output of outputs) await setTags(output, [...output.tags, ...tags]);
  toast(t("gallery.tagged", { count: outputs.length }));
}

export const readTags = (text) => text.split(",").map((one) => one.trim()).filter(Boolean);

/** `reload()` is for a list that became another one before somebody changed their mind. */
export async function throwAway(chosen, reload = () => undefined) {
  const outputs = mineOf(chosen);
  await changeHere(outputs, trashOutputs);
  const place = takeOut(idsOf(outputs));
  refreshJobs(outputs.map(({ job_id }) => job_id));
  const undo = async () => {
    try {
      await changeHere(outputs, restoreOutputs);
    } catch (error) {
      return toast(together(error.message, error.advice));
    }
    refreshJobs(outputs.map(({ job_id }) => job_id));
    for (const { id, grid } of outputs) if (grid) readOutput(id).then(putSheet, () => undefined); // no job has it
    return putBack(place) || reload();
  };
  toast(t("trash.thrown", { count: outputs.length }), { label: t("trash.undo"), act: undo });
}

export async function restore(outputs) {
  await changeHere(outputs, restoreOutputs);
  takeOut(idsOf(outputs));
  refreshJobs(outputs.map(({ job_id }) => job_id));
  toast(t("trash.restored", { count: outputs.length }));
}

export async function purge(outputs) {
  if (!confirm(t("trash.confirm", { count: outputs.length }))) return false;
  await changeHere(outputs, purgeOutputs);
  takeOut(idsOf(outputs));
  toast(t("trash.purged", { count: outputs.length }));
  return true;
}

export async function emptyTrash() {
  if (!confirm(t("trash.confirmAll"))) return false;
  const gone = await purgeOutputs(null);
  toast(t("trash.emptied", { count: gone.length }));
  return search({ state: "trashed" });
}

const remakes = new Map(); // the job's id -> the output that it makes again

/** From its recipe, with its seed; `takeRemake` finds the two that belong together. */
export async function makeAgain(output) {
  const { id } = await submitJob(output.recipe);
  remakes.set(id, output);
  toast(t("gallery.remaking"));
}

/** The output that the job made again; null for every other job. */
export function takeRemake(job) {
  const output = remakes.get(job.id) ?? null;
  remakes.delete(job.id);
  return output;
}

/** A form, not a script: the browser writes the zip to the disk while it comes. */
export function download(outputs) {
  const ids = outputs.map(({ id }) => el("input", { type: "hidden", name: "ids", value: id }));
  const form = el("form", { method: "post", action: at(zipPath), hidden: true }, ...ids);
  document.body.append(form);
  form.submit();
  form.remove();
}

/** The filmstrip, the canvas and the queue show jobs: those of these outputs are read anew. */
export function refreshJobs(jobIds) {
  const known = new Set(jobIds.filter((id) => state.jobs.has(id)));
  for (const id of known) readJob(id).then(putJob, () => undefined);
  for (const id of new Set(jobIds)) {
    const sheet = state.sheets.get(id)?.sheet;
    if (sheet) readOutput(sheet.id).then(putSheet, () => state.sheets.delete(id));
  }
}
