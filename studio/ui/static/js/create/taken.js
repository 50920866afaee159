// Files that somebody brought become a recipe, a LoRA or a model on offer, or pictures to start from, in the order in which they
// came. Not here: how they arrive (files.js), what is offered (recipes.js, lorafile.js, modelfile.js), the pictures (inputs.js).

import { addFiles } from "./inputs.js";
import { isLora, offerLoras } from "./lorafile.js";
import { isCheckpoint, isQuantised, offerModel } from "./modelfile.js";
import { offerRecipe } from "./recipes.js";

let turn = Promise.resolve(); // one after the other, or pictures would change their order

/** Resolves when every file that came so far is a recipe on offer or an input picture on its way. */
export const filesTaken = () => turn;

/** Several files can only be input pictures, a film or a text can only be a recipe. */
export function take(given) {
  const weights = given.filter(isWeights);
  if (weights.length) turn = turn.then(() => offerWeights(weights)).catch(reportError);
  const files = given.filter((one) => !isWeights(one));
  if (!files.length) return;
  const [file, ...others] = files;
  turn = turn
    .then(async () => {
      if (others.length || !(await offerRecipe(file, { isWanted: isFilm(file) }))) addFiles(files);
    })
    .catch(reportError);
}

/** A checkpoint by itself, as it takes minutes; LoRAs together. */
async function offerWeights(files) {
  const [file] = files;
  if (files.length === 1 && (await isCheckpoint(file))) offerModel(file);
  else offerLoras(files);
}

const isWeights = (file) => isLora(file) || isQuantised(file);

const isFilm = (file) => file.type.startsWith("video/") || file.type.startsWith("text/") || file.type === "image/gif";
