// Files that somebody brought become a recipe on offer or pictures to start from, in the order in which they came.
// Not here: how they arrive (files.js), what is offered (recipes.js), the pictures (inputs.js).

import { addFiles } from "./inputs.js";
import { offerRecipe } from "./recipes.js";

let turn = Promise.resolve(); // one after the other, or pictures would change their order

/** Resolves when every file that came so far is a recipe on offer or an input picture on its way. */
export const filesTaken = () => turn;

/** Several files can only be input pictures, a film or a text can only be a recipe. */
export function take(files) {
  const [file, ...others] = files;
  turn = turn
    .then(async () => {
      if (others.length || !(await offerRecipe(file, { isWanted: isFilm(file) }))) addFiles(files);
    })
    .catch(reportError);
}

const isFilm = (file) => file.type.startsWith("video/") || file.type.startsWith("text/") || file.type === "image/gif";
