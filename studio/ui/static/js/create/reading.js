// What the chosen model reads of the prompts, counted by the server while somebody types: word pieces, and words cut off.
// Words that the model never learnt stand there with examples (unknown.js).
// Not here: the prompt itself (controls.js), the counting (pipelines/prompts/reading.py).

import { readPrompt } from "../core/api.js";
import { el, find, keyed, setText } from "../core/dom.js";
import { shownJob } from "../core/store.js";
import { t } from "../core/text.js";
import { saidList } from "../core/translate_server.js";
import { drawUnknown } from "./unknown.js";

const ASK_AFTER_MS = 300; // of quiet: not at every letter
const NOTHING = { prompt: null, negative_prompt: null, notes: [], unknown: null };

let asked = "";
let timer = 0;
let answer = NOTHING;

/** Of a recipe as it would be sent; an older answer stays until the new one is there. `run` makes an example. */
export function drawReading({ model, prompt, negative_prompt, loras }, run) {
  const asking = { model: model.id, prompt, negative_prompt: negative_prompt ?? "", has_choices: true, has_loras: loras.length > 0 };
  const question = prompt.trim() ? JSON.stringify(asking) : "";
  const drawAll = () => {
    draw();
    const { recipe } = shownJob() ?? {};
    const isAbove = recipe?.model === model.id && recipe.prompt === prompt; // the canvas says it with the picture
    drawUnknown(find("lu-prompt-unknown"), isAbove ? null : answer.unknown, model, run);
  };
  if (question !== asked) ask(question, drawAll);
  drawAll();
}

function ask(question, drawAll) {
  asked = question;
  clearTimeout(timer);
  if (!question) {
    answer = NOTHING;
    return;
  }
  timer = setTimeout(async () => {
    const found = await readPrompt(JSON.parse(question)).catch(() => NOTHING); // what is wrong is said when it is queued
    if (asked !== question) return;
    answer = found;
    drawAll();
  }, ASK_AFTER_MS);
}

function draw() {
  const reading = answer.prompt;
  const count = find("lu-prompt-count");
  setText(count, reading ? `${reading.count} / ${reading.room}` : "");
  count.title = reading ? t("create.pieces", { count: reading.count, room: reading.room, limit: reading.limit }) : "";
  count.dataset.wrong = String(Boolean(reading?.unread));
  const notes = find("lu-prompt-notes");
  const told = saidList(answer, "notes").filter((_, index) => answer.notes[index] !== answer.unknown?.note);
  notes.hidden = !told.length;
  keyed(notes, told, {
    key: (note) => note,
    create: (note) => el("li", {}, note),
  });
}
