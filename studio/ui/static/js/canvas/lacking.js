// Above the picture: the words of its prompt that its model never learnt, with examples of what the model can draw.
// Only jobs whose notes say something are asked about. Not here: the same below the prompt (create/reading.js).

import { readPrompt } from "../core/api.js";
import { find } from "../core/dom.js";
import { changed, modelOf } from "../core/store.js";
import { useExample } from "../create/controls.js";
import { drawUnknown } from "../create/unknown.js";

let asked = "";
let unknown = null; // of the question that was asked last

export function drawLacking(job) {
  const model = job ? modelOf(job.recipe.model) : null;
  const { prompt, loras } = job?.recipe ?? {};
  const question =
    model && job.notes?.length ? JSON.stringify({ model: model.id, prompt, has_loras: Boolean(loras?.length) }) : "";
  if (question !== asked) ask(question);
  drawUnknown(find("lu-lacking"), unknown, model, (example) => useExample(example, model.id));
}

/** The note of a job that is told here, so that nobody says it twice; of another job's notes it is none. */
export const isLacking = (note) => note === unknown?.note;

async function ask(question) {
  asked = question;
  unknown = null;
  if (!question) return;
  const found = await readPrompt(JSON.parse(question)).catch(() => null); // the job's notes say it as well
  if (asked !== question) return;
  unknown = found?.unknown ?? null;
  changed();
}
