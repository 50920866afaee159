// Files dropped or pasted anywhere on the page: presets are imported, all else goes to the form (create/taken.js). While
// they are dragged, the page says what dropping them would do.

import { find, setText } from "./core/dom.js";
import { mayTrain } from "./core/store.js";
import { t } from "./core/text.js";
import { isShown, showView } from "./core/views.js";
import { takesPictures } from "./create/inputs.js";
import { offerText } from "./create/recipes.js";
import { take } from "./create/taken.js";
import { importFiles, isPreset } from "./presets/presets.js";
import { addTrainFiles } from "./train/pictures.js";

const DROP_PLACES = ["lu-inputs", "lu-controls", "lu-train-add"];

export function mountFiles() {
  mountDrop();
  document.addEventListener("paste", (event) => {
    const pictures = [...event.clipboardData.files].filter((one) => one.type.startsWith("image/"));
    if (!pictures.length) {
      if (event.target === find("lu-prompt")) offerText(event.clipboardData.getData("text/plain"));
      return; // text goes where it is pasted
    }
    event.preventDefault();
    if (isShown("train")) learnFrom(pictures);
    else take(pictures);
  });
}

/** Whoever may not train is told so on the page. */
function learnFrom(files) {
  if (mayTrain()) addTrainFiles(files);
}

/** Also what misses the row: the browser must not leave the page for it. */
function mountDrop() {
  const places = DROP_PLACES.map(find);
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const hint = find("lu-drop");
  const leave = () => {
    hint.hidden = true;
    places.forEach((place) => delete place.dataset.drop);
  };
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    setText(hint.firstElementChild, hintOf([...event.dataTransfer.items].map(({ type }) => type)));
    hint.hidden = false;
    for (const place of places) place.dataset.drop = "true";
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) leave();
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    leave();
    const files = [...event.dataTransfer.files];
    if (!files.length) return;
    if (isShown("presets") || files.some(isPreset)) {
      importFiles(files);
      return;
    }
    if (isShown("train")) {
      learnFrom(files);
      return;
    }
    showView("create"); // where a recipe is offered, and pictures to start from stand
    take(files);
  });
}

/** What a drop would do. Before it a browser tells the types of files, not their names; a LoRA's it does not know. */
function hintOf(types) {
  const are = (pattern) => types.every((type) => pattern.test(type));
  if (isShown("presets") || are(/json|zip/)) return t("drop.presets");
  if (isShown("train")) return t(mayTrain() ? "train.drop" : "train.refused");
  if (are(/^$/)) return t("drop.unknown");
  if (types.length > 1) return t(takesPictures() ? "drop.several" : "inputs.noModel");
  return t(takesPictures() && are(/^image/) ? "drop.create" : "drop.recipe");
}
