// What people do with the result on the canvas as an output: keep, compare, throw away, download all of a batch.
// Not here: what they do with its settings and its one file (create/actions.js).

import { readOutput } from "../core/api.js";
import { filmJobs, isFocused, shownJob, shownOutput } from "../core/store.js";
import { together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { download } from "../create/actions.js";
import { compareFromElsewhere } from "./compare.js";
import { download as downloadZip, mark, throwAway } from "./output_actions.js";

/** The outputs that actions mean: the one that stands alone, or all of a batch. */
function shownOutputs() {
  const job = shownJob();
  if (job?.state !== "done") return [];
  const outputs = isFocused(job) ? [shownOutput()] : job.outputs;
  return outputs.map((output) => ({ ...output, owner: job.owner, job_id: job.id }));
}

export function downloadShown() {
  const outputs = shownOutputs();
  if (outputs.length > 1) downloadZip(outputs);
  else download();
}

export const isShownMarked = () => shownOutputs().every(({ favourite }) => favourite);

/** The star of a batch is that of each of its outputs. */
export const toggleFavourite = () => ifAny((outputs) => mark(outputs, !isShownMarked()));

export const throwShown = () => ifAny((outputs) => throwAway(outputs));

async function ifAny(act) {
  const outputs = shownOutputs();
  if (!outputs.length) return;
  await act(outputs).catch(tell);
}

const tell = (error) => toast(together(error.message, error.advice));

/** Which two "Compare" means: both of two, one of a batch and the one before it, or a result and the one before it. */
export function shownPair() {
  const job = shownJob();
  if (job?.state !== "done" || job.sheet) return null;
  const { outputs } = job;
  if (isFocused(job) && outputs.length > 1) {
    const place = outputs.indexOf(shownOutput());
    return [outputs[place], outputs[place ? place - 1 : 1]];
  }
  if (outputs.length > 1) return outputs.length === 2 ? outputs : null;
  const others = filmJobs().filter((one) => one.state === "done" && !one.sheet && one.outputs[0].kind === outputs[0].kind);
  const place = others.findIndex(({ id }) => id === job.id);
  const other = others[place + 1] ?? others[place - 1];
  return other ? [outputs[0], other.outputs[0]] : null;
}

/** Their settings are compared as well, which jobs' outputs do not carry. */
export async function compareShown() {
  const pair = shownPair();
  if (!pair) return;
  try {
    compareFromElsewhere(...(await Promise.all(pair.map(({ id }) => readOutput(id)))));
  } catch (error) {
    tell(error);
  }
}
