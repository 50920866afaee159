// Editing a job that waits: its settings stand in the form, Generate becomes Save, and what was there before comes back.

import { editJob } from "../core/api.js";
import { find } from "../core/dom.js";
import { changed, putJob, state } from "../core/store.js";
import { t } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { showView } from "../core/views.js";
import { keptDraft, restoreDraft, useRecipe } from "./controls.js";

let before = null; // the form as it was

export function startEdit(job) {
  const draft = state.editedId ? before : keptDraft();
  if (!useRecipe(job.recipe)) {
    toast(t("toast.noModel", { model: job.recipe.model }));
    return;
  }
  before = draft;
  state.editedId = job.id;
  showView("create");
  drawEdit();
  changed();
  find("lu-prompt").focus();
}

/** Raises what the server says of the settings. */
export async function saveEdit(recipe) {
  putJob(await editJob(state.editedId, recipe));
  endEdit();
  toast(t("edit.saved"));
}

export function mountEdit() {
  find("lu-editing-end").addEventListener("click", () => endEdit());
}

/** The settings of a job that runs already cannot change; they stay in the form for another one. */
export function drawEdit() {
  const job = state.jobs.get(state.editedId);
  if (state.editedId && job?.state !== "queued") {
    state.editedId = null;
    toast(t(job?.state === "cancelled" ? "edit.cancelled" : "edit.started"));
  }
  find("lu-editing").hidden = state.editedId === null;
}

function endEdit() {
  state.editedId = null;
  restoreDraft(before);
  drawEdit();
  changed();
}
