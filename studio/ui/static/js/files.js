// Files dropped or pasted anywhere on the page: presets go to the gallery, a file that carries a recipe offers it, any
// other is a picture to start from.

import { find } from "./dom.js";
import { addFiles } from "./inputs.js";
import { importFiles, isPreset } from "./presets.js";
import { offerRecipe } from "./recipes.js";
import { isShown, showView } from "./views.js";

const DROP_PLACES = ["lu-inputs", "lu-controls"];

let turn = Promise.resolve(); // one after the other, or pictures would change their order

export function mountFiles() {
  mountDrop();
  document.addEventListener("paste", (event) => {
    const pictures = [...event.clipboardData.files].filter((one) => one.type.startsWith("image/"));
    if (!pictures.length) return; // text goes where it is pasted
    event.preventDefault();
    take(pictures);
  });
}

/** Resolves when every file that came so far is a recipe on offer or an input picture on its way. */
export const filesTaken = () => turn;

/** Several files can only be input pictures, a film can only be a recipe. */
function take(files) {
  const [file, ...others] = files;
  turn = turn
    .then(async () => {
      if (others.length || !(await offerRecipe(file, { isWanted: isFilm(file) }))) addFiles(files);
    })
    .catch(reportError);
}

const isFilm = (file) => file.type.startsWith("video/") || file.type === "image/gif";

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
    if (isShown("presets") || files.some(isPreset)) return importFiles(files);
    showView("create"); // where a recipe is offered, and pictures to start from stand
    take(files);
  });
}
