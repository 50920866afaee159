// What people do with recipes, jobs and outputs. Every failure ends as a message that says what to do.

import { ApiError, at, cancelJob, retryJob, submitJob, submitJobs } from "../core/api.js";
import { copyText } from "../core/clipboard.js";
import { find, focused, saveFile } from "../core/dom.js";
import { follow, putJob, runningJob, shownJob, shownOutput, state, waitingJobs } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { findMissing, offerUndo, readRecipe, readSweep, showProblems, usedPreset, useRecipe, useSeed } from "./controls.js";
import { mayDownload } from "./download.js";
import { canSend, sendLater, takeWanted } from "./early.js";
import { saveEdit } from "./edit.js";
import { useGrid } from "./griddialog.js";
import { addInput, countSending, inputsSent, whyNoInput } from "./inputs.js";
import { rememberPrompt } from "./prompthistory.js";
import { filesTaken } from "./taken.js";

let isSending = false;

/** `fixed` are values of the recipe that do not stand in the form: an example's seed. */
export async function generate(fixed = {}) {
  if (isSending) return;
  if (!canSend()) return sendLater();
  takeWanted(); // this is it
  isSending = true;
  find("lu-generate").setAttribute("aria-disabled", "true");
  try {
    await filesTaken();
    const missing = findMissing();
    if (Object.keys(missing).length) {
      showProblems(missing);
      return;
    }
    if (countSending()) toast(t("inputs.waits", { count: countSending() }));
    if (!(await inputsSent())) return;
    const recipe = { ...readRecipe(), ...fixed };
    const typed = find("lu-prompt").value;
    if (!(await mayDownload(recipe.model))) return;
    if (state.editedId) {
      await saveEdit(recipe);
      rememberPrompt(typed);
      showProblems({});
      return;
    }
    const sweep = readSweep();
    if (sweep) {
      const { ids } = await submitJobs(sweep, usedPreset());
      rememberPrompt(typed);
      showProblems({});
      follow();
      toast(t("toast.queued", { count: ids.length }));
      scrollToResult();
      return;
    }
    const isBusy = runningJob() !== null || waitingJobs().length > 0;
    const job = await submitJob(recipe, usedPreset());
    rememberPrompt(typed);
    showProblems({});
    if (!state.jobs.has(job.id))
      putJob({
        recipe,
        created_at: Date.now() / 1000,
        outputs: [],
        steps: recipe.steps,
        step: 0,
        state: "queued",
        ...job,
      });
    follow();
    if (isBusy) toast(t("toast.queued", { count: 1 }));
    scrollToResult();
  } catch (error) {
    report(error);
  } finally {
    isSending = false;
    find("lu-generate").removeAttribute("aria-disabled");
  }
}

/** On a phone the result is above the controls. */
function scrollToResult() {
  if (matchMedia("(max-width: 819px)").matches) {
    find("studio").scrollTo({
      top: 0,
      behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
    });
    focused()?.blur();
  }
}

function report(error) {
  if (!(error instanceof ApiError)) throw error;
  if (Object.keys(error.fields).length) showProblems(error.fields);
  else showProblems({ recipe: together(error.detail, error.advice) });
}

export async function cancel(job) {
  putJob({ id: job.id, cancel_requested: true });
  await cancelJob(job.id).catch((error) => toast(error.detail));
}

export async function retry(job) {
  try {
    await retryJob(job.id);
    follow();
  } catch (error) {
    toast(together(error.detail, error.advice));
  }
}

export const download = () => save("download=true");

/** A video as "gif" or "webp", for places that take no MP4. */
export const downloadAs = (kind) => save(`download=true&as=${kind}`);

function save(query) {
  const output = shownOutput();
  if (!output) return;
  saveFile(`${at(output.url)}?${query}`);
}

export function useSettings() {
  const job = shownJob();
  if (!job) return;
  if (job.sheet) {
    useGrid(job.sheet.recipe, job.sheet.grid);
    return;
  }
  const single = state.view.image !== null || job.outputs?.length === 1;
  const recipe = state.view.image === null ? job.recipe : { ...job.recipe, batch_size: 1 };
  fillIn(recipe, single ? shownOutput()?.seed : undefined);
}

export const useSettingsOf = (job) => fillIn(job.recipe);

function fillIn(recipe, seed) {
  if (useRecipe(recipe, seed)) offerUndo(t("toast.settings"));
  else toast(t("toast.noModel", { model: recipe.model }));
}

export function reuseSeed() {
  const output = shownOutput();
  if (!output) return;
  useSeed(output.seed);
  offerUndo(t("toast.seed", { seed: String(output.seed) }));
}

export function useAsInput() {
  const output = shownOutput();
  if (!output || (shownJob().outputs.length > 1 && state.view.image === null)) return;
  const refusal = whyNoInput(output);
  if (!refusal) addInput(output.id);
  toast(refusal || t("inputs.added"));
}

export async function copyPrompt() {
  const job = shownJob();
  if (!job) return;
  await copyText(job.recipe.prompt);
  toast(t("toast.promptCopied"));
}
