// One recipe for many jobs: prompts with choices and several seeds, counted by the server before anything is queued.
// Not here: queueing them (actions.js), reading such prompts (studio/jobs/many/templates.py).

import { countSweep } from "../core/api.js";
import { el, find, keyed, setText } from "../core/dom.js";
import { framesIn, sentence, wholeSeconds } from "../core/format.js";
import { isOperator, state } from "../core/store.js";
import { t } from "../core/text.js";
import { showView } from "../core/views.js";

const ASK_AFTER_MS = 250; // of quiet: not at every letter
const SHOWN = 3;
const MAX = 100; // of the server, studio/jobs/many/sweep.py
const FIRST_DRAWS = 8;
// Something that may be a wildcard, or a choice; the server knows for certain.
const WILDCARD = /__[A-Za-z0-9][^]*__/;
const CHOICE = new RegExp(`\\{[^]*\\|[^]*\\}|${WILDCARD.source}`);

let asked = "";
let timer = 0;
let answer = null; // what the server counted, or {error}
/** @type {(kept: { seeds?: number, draws?: number | null }) => unknown} */
let change = () => undefined;

/** `onChange({seeds, draws})` keeps what people set. */
export function mountSweep(onChange) {
  change = onChange;
  const seeds = find("lu-seeds");
  seeds.addEventListener("input", () => seeds.value !== "" && change({ seeds: within(seeds.value) }));
  seeds.addEventListener("blur", () => (seeds.value = String(within(seeds.value))));
  find("lu-draws-on").addEventListener("change", (event) => {
    change({ draws: event.currentTarget.checked ? within(find("lu-draws").value || FIRST_DRAWS) : null });
  });
  find("lu-sweep-system").addEventListener("click", () => showView("system", "loras"));
  find("lu-draws").addEventListener("input", (event) => {
    if (event.currentTarget.value !== "") change({ draws: within(event.currentTarget.value) });
  });
}

const within = (value) => Math.min(MAX, Math.max(1, Math.round(Number(value)) || 1));

export const isSweep = (prompt, seeds) => !state.editedId && (seeds > 1 || CHOICE.test(prompt));

/** `sweep` is {recipe, seeds, draws}; null when one job is all there is. */
export function drawSweep(sweep, { seeds, draws }) {
  if (find("lu-seeds") !== document.activeElement) find("lu-seeds").value = String(seeds);
  find("lu-draws-on").checked = draws !== null;
  if (draws !== null && find("lu-draws") !== document.activeElement) find("lu-draws").value = String(draws);
  const question = sweep?.recipe.prompt.trim() ? JSON.stringify(sweep) : "";
  if (question !== asked) ask(question);
  draw();
}

function ask(question) {
  asked = question;
  clearTimeout(timer);
  if (!question) {
    answer = null;
    return;
  }
  timer = setTimeout(async () => {
    const found = await countSweep(JSON.parse(question)).catch((error) => ({ error }));
    if (asked !== question) return;
    answer = found;
    draw();
  }, ASK_AFTER_MS);
}

function draw() {
  const isShown = answer !== null && !(answer.error && !answer.error.fields?.prompt);
  find("lu-sweep").hidden = !isShown;
  setText(find("lu-generate").querySelector("span"), labelOf());
  if (!isShown) return;
  const isTooMany = !answer.error && answer.count > answer.limit;
  find("lu-sweep").dataset.wrong = String(Boolean(answer.error) || isTooMany);
  setText(find("lu-sweep-count"), answer.error ? sentence(answer.error.fields.prompt) : lineOf(answer));
  find("lu-draws-box").hidden = Boolean(answer.error) || answer.combinations < 2;
  if (!answer.error) offerDraws(answer.combinations);
  find("lu-sweep-system").hidden = !(answer.error && isOperator() && WILDCARD.test(JSON.parse(asked).recipe.prompt));
  drawExamples(answer.error || answer.is_plain ? [] : examplesOf(answer));
}

/** Fewer than there are, as long as nobody asked for a number. */
function offerDraws(combinations) {
  const draws = find("lu-draws");
  draws.max = String(Math.min(MAX, combinations));
  if (!find("lu-draws-on").checked) draws.value = String(Math.min(FIRST_DRAWS, combinations - 1));
  setText(find("lu-draws-of"), t("sweep.ofThem", { count: combinations }));
}

function labelOf() {
  if (state.editedId) return t("edit.save");
  const isMany = answer?.count > 1 && answer.count <= answer.limit;
  return isMany ? t("sweep.queue", { count: answer.count }) : t("create.generate");
}

function lineOf({ count, prompts, combinations, seeds, images, seconds, limit }) {
  const parts = [
    ...(combinations > 1 ? [t("sweep.prompts", { count: prompts })] : []),
    ...(seeds > 1 ? [t("sweep.seeds", { count: seeds })] : []),
  ];
  const total = `${parts.join(" × ")} = ${t("sweep.jobs", { count })}`;
  if (count > limit) return t("sweep.tooMany", { total, limit });
  const isVideo = framesIn(JSON.parse(asked).recipe.shape) > 1;
  const pictures = images > count ? ` · ${t(isVideo ? "queue.videos" : "queue.images", { count: images })}` : "";
  return `${total}${pictures}${seconds === null ? "" : ` · ${t("sweep.about", { time: wholeSeconds(seconds) })}`}`;
}

/** The first ones; of prompts at random only what one may look like. */
function examplesOf({ examples, prompts, combinations }) {
  if (prompts < combinations) return [t("sweep.such", { prompt: examples[0] })];
  const shown = examples.slice(0, SHOWN);
  const rest = prompts - shown.length;
  return rest > 0 ? [...shown, t("sweep.more", { count: rest })] : shown;
}

function drawExamples(rows) {
  keyed(find("lu-sweep-examples"), rows, {
    key: (text) => text,
    create: (text) => el("li", { title: text }, text),
  });
}
