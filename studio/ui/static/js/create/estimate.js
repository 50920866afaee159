// What a recipe with input pictures costs: for some models their number and size are compiled too, which the size cards
// cannot know. The server is asked when the question changes, or when the engine did something since.

import { estimateJob } from "../core/api.js";
import { changed, state } from "../core/store.js";

let asked = { question: "", models: null };
let answer = null;

/** `{programs, state, warm_s, seconds}` of this size with these pictures; null where they make no difference, or yet. */
export function estimateWith(model, shape, { images, batch_size, guidance_scale }) {
  if (!model.has_references || !images.length || images.length > model.limits.images) return null;
  const question = JSON.stringify({ model: model.id, shape, images, batch_size, guidance_scale, prompt: "an estimate" });
  if (question !== asked.question) answer = null;
  if (question !== asked.question || state.models !== asked.models) ask(question);
  return answer;
}

async function ask(question) {
  const mine = { question, models: state.models };
  asked = mine;
  const found = await estimateJob(JSON.parse(question)).catch(() => null); // what is wrong is said when it is queued
  if (asked !== mine) return;
  answer = found;
  changed();
}
