// What can be done with a training now: its buttons, in their order. Not here: how they look (card.js).

import { continueTraining, deleteLora, deleteTraining, loraFile, pauseTraining, readTraining } from "../core/api.js";
import { saveFile } from "../core/dom.js";
import { setAside } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { showView } from "../core/views.js";
import { cancel } from "../create/actions.js";
import { offerUndo, useRecipe } from "../create/controls.js";
import { loadLoras, missingLoras } from "../create/loras.js";
import { fillForm } from "./form.js";

/**
 * Pause and Go on are one button, so that whoever presses it keeps it under the finger and the focus.
 * @typedef {{
 *   key: string,
 *   name: string,
 *   label: string,
 *   isAccent?: boolean,
 *   isBrief?: boolean,
 *   isBusy?: boolean,
 *   href?: string,
 *   act?: (event: any) => unknown,
 * }} Action
 */

/**
 * `put` takes a training as the server answers it, `forget` the id of one that is gone.
 * @returns {Action[]}
 */
export function actionsOf(training, job, { put, forget, isInFront }) {
  const change = (ask) => attempt(async () => put(await ask(training.id)));
  const end = { key: "cancel", name: "close", label: t("common.cancel"), act: () => cancel(job) };
  const isBusy = training.pause_requested || job.cancel_requested;
  const pause = { key: "turn", name: "pause", label: t("train.pause"), isBusy, act: () => isBusy || change(pauseTraining) };
  const goOn = { key: "turn", name: "play", label: t("train.goOn"), isAccent: true, act: () => change(continueTraining) };
  const pictures = { key: "pictures", name: "image", label: t("train.usePictures"), act: () => attempt(() => fill(training)) };
  if (["queued", "running"].includes(job.state)) return [pause, end, pictures];
  if (job.state === "paused") return [goOn, end, pictures];
  const aside = { key: "aside", name: "close", label: t("common.dismiss"), isBrief: true, act: () => setAside(job) };
  const trash = { key: "delete", name: "trash", label: t("train.delete"), isBrief: true, act: () => remove(training, forget) };
  const rest = [pictures, ...(isInFront ? [aside] : []), trash];
  if (job.state !== "done") return [goOn, ...rest];
  if (!training.loras.length) return rest;
  const act = () => attempt(async () => (await useTraining(training, job)) || put(await readTraining(training.id)));
  const use = { key: "use", name: "spark", label: t("train.use"), isAccent: true, act };
  return [use, ...training.loras.map((ref) => downloadOf(ref, training, put)), ...rest];
}

/** One of two experts says which. */
function downloadOf(ref, { id, name, loras }, put) {
  const label = t("train.download");
  const act = (event) => {
    event.preventDefault();
    attempt(async () => ((await areHere([ref], name)) ? saveFile(loraFile(ref)) : put(await readTraining(id))));
  };
  return { key: `file ${ref}`, name: "download", label: loras.length > 1 ? t("common.named", { name: label, value: ref }) : label, href: loraFile(ref), act };
}

async function attempt(ask) {
  try {
    await ask();
  } catch (error) {
    toast(together(error.message, error.advice));
  }
}

const fill = async ({ id }) => fillForm(await readTraining(id));

/** Its LoRA only if that is wanted too: who trained one has no other place to delete it, unless an admin. */
async function remove({ id, name, loras }, forget) {
  if (!confirm(t("train.confirmDelete", { name }))) return;
  await attempt(async () => {
    await deleteTraining(id);
    forget(id);
    toast(t("train.deleted", { name }));
    const names = loras.join(", ");
    if (!loras.length || !confirm(t("train.confirmDeleteLora", { name: names }))) return;
    for (const ref of loras) await deleteIfHere(ref);
    toast(t("loras.deleted", { name: names }));
    await loadLoras();
  });
}

/** It may have been deleted elsewhere meanwhile, which is what was asked for. */
async function deleteIfHere(ref) {
  await deleteLora(ref).catch((error) => {
    if (error.status !== 404) throw error;
  });
}

/** Tells whether the LoRAs that a training of this name made are here, as the server has them now; says so where one is
 *  not: it may have been deleted elsewhere. */
async function areHere(loras, name) {
  await loadLoras();
  const missing = missingLoras(loras.map((ref) => ({ ref })));
  if (loras.length && !missing.length) return true;
  toast(t("train.loraGone", { name: missing.join(", ") || name }));
  return false;
}

/** @type {Map<string, () => void>} */
const offered = new Map(); // id -> takes the message away that a training is done

/** Tells that a training is done, and offers what it learnt until that is used. */
export function offerUse({ id, title: name }) {
  const act = () =>
    attempt(async () => {
      const training = await readTraining(id);
      await useTraining(training, training.job);
    });
  offered.set(id, toast(t("train.done", { name }), { label: t("train.use"), act }));
}

/** Opens Create with the model and what it learnt; false where that is not here any more, without which other pictures
 *  would be made than were asked for. */
async function useTraining({ name, loras }, job) {
  offered.get(job.id)?.();
  if (!(await areHere(loras, name))) return false;
  if (!useRecipe({ ...job.recipe, loras: loras.map((ref) => ({ ref, scale: 1 })) }, null)) {
    toast(t("toast.noModel", { model: job.recipe.model }));
    return true;
  }
  showView("create");
  offerUndo(t("train.inUse"));
  return true;
}
