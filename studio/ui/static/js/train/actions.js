// What can be done with a training now: its buttons, in their order. Not here: how they look (card.js).

import { continueTraining, deleteLora, deleteTraining, loraFile, pauseTraining, readTraining } from "../core/api.js";
import { setAside } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { showView } from "../core/views.js";
import { cancel } from "../create/actions.js";
import { offerUndo, useRecipe } from "../create/controls.js";
import { loadLoras } from "../create/loras.js";
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
 *   act?: () => unknown,
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
  const use = { key: "use", name: "spark", label: t("train.use"), isAccent: true, act: () => attempt(() => useTraining(training, job)) };
  return [use, ...training.loras.map((ref) => downloadOf(ref, training)), ...rest];
}

/** One of two experts says which. */
function downloadOf(ref, { loras }) {
  const label = t("train.download");
  return { key: `file ${ref}`, name: "download", label: loras.length > 1 ? t("common.named", { name: label, value: ref }) : label, href: loraFile(ref) };
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
    for (const ref of loras) await deleteLora(ref);
    toast(t("loras.deleted", { name: names }));
    await loadLoras();
  });
}

/** Opens Create with the model and what it learnt. */
export async function useTraining({ loras }, job) {
  await loadLoras();
  if (!useRecipe({ ...job.recipe, loras: loras.map((ref) => ({ ref, scale: 1 })) }, null)) {
    toast(t("toast.noModel", { model: job.recipe.model }));
    return;
  }
  showView("create");
  offerUndo(t("train.inUse"));
}
