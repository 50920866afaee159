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
  onView(openTrain);
}

export function openTrain() {
  if (!isShown("train")) return;
  say(null);
  Promise.all([loadChoices(), loadTrainings()]).catch(say);
}

/** One of them, by its id, from elsewhere. */
export function lookAtTraining(id) {
  showView("train");
  showTraining(id).catch(say);
}

/** What was selected in the gallery becomes what is learnt from. */
export function trainOn(outputs) {
  addTrainOutputs(outputs);
  showView("train");
  find("lu-train-title").focus();
}
