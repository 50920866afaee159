// Editing a job that waits: its settings stand in the form, Generate becomes Save, and what was there before comes back.

import { editJob } from "../core/api.js";
import { find } from "../core/dom.js";
import { changed, modelOf, putJob, state } from "../core/store.js";
import { t } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { showView } from "../core/views.js";
import { keptDraft, restoreDraft, settleDraft, useRecipe } from "./controls.js";

let before = null; // the form as it was

export function startEdit(job) {
  if (!modelOf(job.recipe.model)) {
    toast(t("toast.noModel", { model: job.recipe.model }));
    return;
  }
  const [other, edited] = [state.jobs.get(state.editedId), keptDraft()];
  edit(job, () => useRecipe(job.recipe));
  const goBack = other ? () => edit(other, () => restoreDraft(edited)) : endEdit;
  toast(t("edit.hint"), { label: t("trash.undo"), act: () => state.editedId === job.id && goBack() });
}

/** From here on the form is the job's (`fill` makes it so), and what stood there before waits. */
function edit(job, fill) {
  before = state.editedId ? before : keptDraft();
  state.editedId = job.id;
  fill();
  settleDraft(); // what stood there before waits, and comes back by the button
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
  find("lu-editing-end").addEventListener("click", stopEdit);
}

/** The settings of a job that runs already cannot change; they stay in the form for another one, unless Undo brings back
 *  what stood there before. */
export function drawEdit() {
  const job = state.jobs.get(state.editedId);
  if (state.editedId && job?.state !== "queued") {
    state.editedId = null;
    const act = () => restoreDraft(before);
    toast(t(job?.state === "cancelled" ? "edit.cancelled" : "edit.started"), { label: t("trash.undo"), act });
  }
  find("lu-editing").hidden = state.editedId === null;
}

/** Nothing was saved, so what was typed can come back as long as the job waits. */
function stopEdit() {
  const job = state.jobs.get(state.editedId);
  const edited = keptDraft();
  endEdit();
  const act = () => {
    if (state.jobs.get(job.id)?.state === "queued") edit(job, () => restoreDraft(edited));
    else restoreDraft(edited);
  };
  toast(t("edit.stopped"), { label: t("trash.undo"), act });
}

function endEdit() {
  state.editedId = null;
  restoreDraft(before);
  drawEdit();
  changed();
}
