// Files dropped or pasted anywhere on the page: presets are imported, all else goes to the form (create/taken.js).

import { find } from "./core/dom.js";
import { isShown, showView } from "./core/views.js";
import { offerText } from "./create/recipes.js";
import { take } from "./create/taken.js";
import { importFiles, isPreset } from "./presets/presets.js";

const DROP_PLACES = ["lu-inputs", "lu-controls"];

export function mountFiles() {
  mountDrop();
  document.addEventListener("paste", (event) => {
    const pictures = [...event.clipboardData.files].filter((one) => one.type.startsWith("image/"));
    if (!pictures.length) {
      if (event.target === find("lu-prompt")) offerText(event.clipboardData.getData("text/plain"));
      return; // text goes where it is pasted
    }
    event.preventDefault();
    take(pictures);
  });
}

/** Also what misses the row: the browser must not leave the page for it. */
function mountDrop() {
  const places = DROP_PLACES.map(find);
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const leave = () => places.forEach((place) => delete place.dataset.drop);
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
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
    showView("create"); // where a recipe is offered, and pictures to start from stand
    take(files);
  });
}
