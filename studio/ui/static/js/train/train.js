// The Train view: reads what there is when it opens, and follows it from there.

import { find } from "../core/dom.js";
import { isShown, onView, showView } from "../core/views.js";
import { loadChoices, mountForm } from "./form.js";
import { addTrainOutputs } from "./pictures.js";
import { mountSample } from "./sample.js";
import { loadTrainings, say, showTraining } from "./trainings.js";

export function mountTrain() {
  mountForm((id) => showTraining(id).catch(say));
  mountSample();
  find("lu-train-gallery").addEventListener("click", () => showView("gallery"));
  onView(openTrain);
}

let opening = Promise.resolve();

export function openTrain() {
  if (!isShown("train")) return;
  say(null);
  opening = Promise.all([loadChoices(), loadTrainings()]).then(() => undefined, say);
}

/** One of them, by its id, from elsewhere. */
export function lookAtTraining(id) {
  showView("train");
  showTraining(id).catch(say);
}

/** What was selected in the gallery becomes what is learnt from. */
export async function trainOn(outputs) {
  const focusFirst = addTrainOutputs(outputs);
  showView("train");
  find("lu-train-title").focus();
  await opening; // its cards stand above the form
  if (!isShown("train")) return;
  find("lu-train-form").scrollIntoView({ block: "start" });
  focusFirst();
}
