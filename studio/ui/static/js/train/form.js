// What to learn from the pictures: trigger, name, model, strength, what to keep, and what that takes.

import { ApiError, readDownload, readTrainingChoices, submitTraining } from "../core/api.js";
import { arrowsChoose, el, find, keyed, setText } from "../core/dom.js";
import { bytes, moneyText, seconds } from "../core/format.js";
import { recallJson, remember } from "../core/memory.js";
import { clearOnChange, clearMessage, focusProblem, tellProblems } from "../core/problems.js";
import { mayTrain, modelOf, onChange, state } from "../core/store.js";
import { locale, named, t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { loadLoras, nameOf } from "../create/loras.js";
import { areLacking, countClips, countPictures, countSending, countUnsent, forgetPictures, forgiveCaptions, markPictures, mountPictures, readPictures, replacePictures, setLearntArea } from "./pictures.js";

const KEY = "lumesh.train";
const LINES = ["trigger", "name", "sample", "prior"];
const CHOSEN = ["strength", "keep"];
const AUTO = "auto"; // the server's word for the model's own examples

const downloads = new Map(); // model -> the bytes that come first; null: not known

let choices = null;
let draft = { trigger: "", name: "", sample: "", prior: "", model: "", start: "", strength: "usual", keep: "scenes" };
let hasNamed = false; // by hand; until then the name follows the trigger
let isSending = false;
let drawnLoras; // as the choice of one to go on from has them
let tellsLacking = false; // the message above the captions

/** `sent(id)` is called with each training that was queued. */
export function mountForm(sent) {
  draft = { ...draft, ...recallJson(KEY, {}) };
  hasNamed = draft.name !== "" && draft.name !== draft.trigger;
  const form = find("lu-train-form");
  clearOnChange(form, "training");
  mountPictures(() => {
    clearMessage(form, "pictures");
    if (tellsLacking && !areLacking()) {
      tellsLacking = false;
      clearMessage(form, "caption");
    }
    drawForm();
  });
  for (const name of LINES)
    find(`lu-train-${name}`).addEventListener("input", (event) => {
      if (name === "name") hasNamed = event.currentTarget.value !== "";
      if (name === "trigger") {
        forgiveCaptions();
        clearMessage(form, "caption");
      }
      keep({ [name]: event.currentTarget.value });
    });
  for (const name of ["model", "start"])
    find(`lu-train-${name}`).addEventListener("change", (event) => keep({ [name]: event.currentTarget.value }));
  for (const name of CHOSEN) {
    arrowsChoose(find(`lu-train-${name}`));
    find(`lu-train-${name}`).addEventListener("click", (event) => {
      const key = event.target.closest("[role=radio]")?.dataset.key;
      if (key) keep({ [name]: key });
    });
  }
  form.addEventListener("keydown", (event) => {
    const endsWord = event.key === "Enter" && event.target.matches("input") && !event.isComposing;
    if (endsWord) event.preventDefault(); // Ctrl+Enter trains (keys.js): it takes hours
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(sent);
  });
  drawForm();
  onChange(() => {
    if (state.loras !== drawnLoras) drawForm(); // one was deleted, or trained
    else setLearntArea(areaOf(find("lu-train-model").value)); // its sizes may come later than the choices
  });
}

/** Models and LoRAs come and go, and each training makes the next one's time better known. */
export async function loadChoices() {
  [choices] = await Promise.all([readTrainingChoices(), loadLoras()]);
  drawForm();
}

/** Fills the form from a training as `readTraining` answers it, so that it can be done again otherwise; Undo brings back
 *  what stood there. What the form cannot hold is said. */
export async function fillForm(training) {
  if (!choices) await loadChoices();
  const before = { draft, hasNamed };
  const { trigger, strength, preserve, prior_prompts: prior, pictures } = training;
  const model = choices.models.find(({ id }) => id === training.model);
  const putBack = replacePictures(pictures);
  hasNamed = true;
  keep({
    trigger,
    name: nextName(training),
    sample: sampleOf(training),
    prior: prior.filter((prompt) => prompt !== AUTO).join("\n"),
    model: model ? model.id : draft.model,
    start: (model && startOf(model, training.start_from)?.ref) ?? "",
    strength,
    keep: prior.length ? "prior" : preserve ? "scenes" : "off",
  });
  showProblems({});
  const undo = () => {
    putBack();
    ({ hasNamed } = before);
    keep(before.draft);
  };
  toast(together(t("train.filled", { name: training.name }), ...lostOf(training, model)), { label: t("trash.undo"), act: undo });
  const form = find("lu-train-form");
  form.scrollIntoView({ block: "start" });
  find("lu-train-trigger").focus({ preventScroll: true });
}

/** The name, unless a LoRA has it or will have it: then the one with the next number. */
function nextName({ name, loras, job }) {
  if (!loras.length && !["queued", "running", "paused"].includes(job.state)) return name;
  const [, stem, number] = /^(.*?)(?:-(\d+))?$/.exec(name);
  return `${stem}-${Number(number ?? 1) + 1}`;
}

/** The prompt of its samples; none where it is the first caption as it is learnt, which the form takes by itself. */
function sampleOf({ sample_prompts: [prompt = ""], pictures: [first], trigger }) {
  const caption = first?.caption.trim() || trigger;
  return [caption, `${trigger}, ${caption}`].includes(prompt) ? "" : prompt;
}

/** What of a training the form has no place for, as sentences. */
function lostOf({ model: id, start_from: ref, sample_prompts: samples, numbers, strength, preserve, prior_prompts: prior }, model) {
  const start = model && startOf(model, ref);
  const own = model && numbersOf(model.strengths[strength], start);
  const isMixed = prior.length > 1 && prior.includes(AUTO);
  const isOwn = !own || ["steps", "rank", "learning_rate"].every((name) => own[name] === numbers[name]);
  return [
    model ? "" : t("train.filledOtherModel", { model: id }),
    !ref || start ? "" : t("train.filledStart", { name: ref }),
    isOwn ? "" : t("train.filledNumbers", { numbers: numbersText(numbers), strength: t(`train.${strength}`) }),
    isMixed || (prior.length > 0 && !preserve) ? t("train.filledKeep") : "",
    samples.length > 1 ? t("train.filledSample", { count: samples.length - 1 }) : "",
  ].filter(Boolean);
}

/** LoRAs of the model that can learn on: pairs of matrices. */
const startsOf = (model) => (state.loras ?? []).filter(({ kind, rank, models }) => kind === "LoRA" && rank > 0 && models.includes(model.id));

/** The one that was chosen, if it is here and of this model. */
const startOf = (model, chosen = draft.start) => startsOf(model).find(({ ref }) => ref === chosen);

/** Whether the one that was chosen is not here any more, as far as it is known which are. */
const isStartLost = () => Boolean(draft.start && state.loras && !state.loras.some(({ ref }) => ref === draft.start));

/** What learns on keeps its rank. */
const numbersOf = (numbers, start) => (start ? { ...numbers, rank: start.rank } : numbers);

function keep(values) {
  draft = { ...draft, ...values };
  if (!hasNamed && draft.name !== draft.trigger.trim()) {
    draft.name = draft.trigger.trim();
    clearMessage(find("lu-train-form"), "name");
  }
  remember(KEY, JSON.stringify(draft));
  drawForm();
}

function drawForm() {
  for (const name of LINES) {
    const line = find(`lu-train-${name}`);
    if (line.value !== draft[name]) line.value = draft[name];
  }
  drawnLoras = state.loras;
  const model = drawModels(choices?.models ?? []);
  setText(find("lu-train-model-note"), model ? together(clipText(model), modelText(model)) : "");
  setLearntArea(areaOf(model?.id));
  const start = drawStart(model);
  for (const name of CHOSEN)
    for (const button of find(`lu-train-${name}`).querySelectorAll("[role=radio]")) {
      const isChosen = button.dataset.key === draft[name];
      button.setAttribute("aria-checked", String(isChosen));
      button.tabIndex = isChosen ? 0 : -1;
    }
  find("lu-train-prior-row").hidden = draft.keep !== "prior";
  const numbers = model && numbersOf(model.strengths[draft.strength], start);
  setText(find("lu-train-numbers"), numbers ? numbersText(numbers) : "");
  setText(find("lu-train-keep-note"), model ? keepText(model.prior) : "");
  const waits = isSending && countSending(); // of whoever asked for it before all had come
  setText(find("lu-train-cost"), waits ? t("inputs.waits", { count: waits }) : model ? costText(numbers, model.prior) : "");
  find("lu-train-go").setAttribute("aria-disabled", String(isSending));
}

/** Fills the choice of a model; returns the chosen one, if it is here. One that was chosen and is gone stays in sight, and
 *  the server refuses it: without it, another model would learn than was asked for. */
function drawModels(models) {
  const chosen = choices && (draft.model || choices.default);
  const model = models.find(({ id }) => id === chosen);
  const lost = chosen && !model ? [{ id: chosen, text: t("train.lost", { name: chosen }) }] : [];
  const textOf = ({ title, is_here: isHere }) => (isHere ? named(title) : t("model.away", { title: named(title) }));
  keyed(find("lu-train-model"), [...lost, ...models.map((one) => ({ id: one.id, text: textOf(one) }))], {
    key: ({ id }) => id,
    create: ({ id }) => el("option", { value: id }),
    update: (option, { text }) => setText(option, text),
  });
  if (chosen) find("lu-train-model").value = chosen;
  return model;
}

/** How many pixels it learns of each picture, whatever its proportions: those of its default size; 0 where none is known. */
function areaOf(id) {
  const model = modelOf(id);
  const size = model?.shapes.find(({ shape }) => shape === model.defaults.shape);
  return size ? size.width * size.height : 0;
}

/** Fills the choice of a LoRA to learn on from, which is there where there is one; returns what is chosen.
 *  One that was chosen and is gone stays in sight: without it, another LoRA would be learnt than was asked for. */
function drawStart(model) {
  const starts = (model ? startsOf(model) : []).map((lora) => ({ ref: lora.ref, text: nameOf(lora) }));
  const lost = isStartLost() ? [{ ref: draft.start, text: t("train.lost", { name: draft.start }) }] : [];
  find("lu-train-start-row").hidden = !starts.length && !lost.length;
  keyed(find("lu-train-start"), [{ ref: "", text: t("train.startNew") }, ...lost, ...starts], {
    key: ({ ref }) => ref,
    create: ({ ref }) => el("option", { value: ref }),
    update: (option, { text }) => setText(option, text),
  });
  const start = model && startOf(model);
  find("lu-train-start").value = start?.ref ?? lost[0]?.ref ?? "";
  setText(find("lu-train-start-note"), start ? t("train.startNote") : "");
  return start;
}

/** What becomes of the clips, as soon as some are there: they are sent for minutes. */
function clipText({ clip_s: time }) {
  const count = countClips();
  if (!count) return "";
  return time === null ? t("train.clipsRefused", { count }) : t("train.clipsLearnt", { time: seconds(time) });
}

/** Whose weights learn, where they are others', and what has to come first. */
function modelText({ id, is_here: isHere, starts_from: repo }) {
  if (isHere) return repo ? t("train.startsFrom", { repo }) : "";
  if (repo) return together(t("train.startsFrom", { repo }), t("train.away")); // two downloads, of which one is measured
  if (!downloads.has(id)) measureDownload(id);
  const size = downloads.get(id);
  return size ? t("train.awaySize", { size: bytes(size) }) : t("train.away");
}

async function measureDownload(id) {
  downloads.set(id, null);
  const told = await readDownload(id).catch(() => null); // it is only a note
  if (!told?.bytes) return;
  downloads.set(id, told.bytes);
  drawForm();
}

/** The numbers behind a strength, as whoever knows them writes them. */
export const numbersText = ({ steps, rank, learning_rate }) =>
  t("train.numbers", { steps, rank, rate: learning_rate.toLocaleString(locale, { maximumSignificantDigits: 3 }) });

const hasTrigger = () => draft.trigger.trim() !== "";

const priorPrompts = () =>
  draft.prior
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/** How many pictures the model makes first: as many as there are to learn, or as prompts if these are more. */
function countPrior(prior) {
  if (draft.keep !== "prior") return 0;
  return Math.max(countPictures(), new Set(priorPrompts()).size || prior.prompts);
}

/** What the choice does, and what its own part of the work takes. */
function keepText(prior) {
  if (draft.keep === "off") return t("train.keepOffNote");
  const scenes = t(hasTrigger() ? "train.keepScenesNote" : "train.keepNoTrigger");
  if (draft.keep === "scenes") return scenes;
  const count = countPrior(prior);
  const took = prior.picture.seconds;
  const made = took === null ? t("train.priorNote", { count }) : t("train.priorTakes", { count, time: seconds(count * took) });
  return hasTrigger() ? together(made, scenes) : made;
}

/** What learning takes, with the pictures before it where that is known. */
function costText(numbers, prior) {
  const learning = draft.keep !== "off" && hasTrigger() ? numbers : numbers.alone;
  if (learning.seconds === null) return t("train.unknownTime");
  const count = countPrior(prior);
  const like = learning.is_planned
    ? t(learning.is_about ? "train.plannedAbout" : "train.planned")
    : learning.is_about
      ? t("train.takenFromOthers")
      : "";
  if (count && prior.picture.seconds === null) return together(t("train.takesThen", { time: seconds(learning.seconds) }), like);
  const sum = (name) => learning[name] + count * prior.picture[name];
  const time = seconds(sum("seconds"));
  if (learning.cost_usd === null) return together(t("train.takes", { time }), like);
  return together(t("train.takesCosting", { time, cost: moneyText(sum("cost_usd")) }), like);
}

async function submit(sent) {
  if (isSending || !mayTrain()) return;
  showProblems({});
  if (!countPictures()) {
    showProblems({ pictures: t("train.noPictures") });
    return;
  }
  if (isStartLost()) {
    showProblems({ start_from: t("train.startGone", { name: draft.start }) });
    return;
  }
  isSending = true;
  drawForm();
  try {
    const unsent = await countUnsent();
    if (unsent) {
      showProblems({ pictures: t("train.unsent", { count: unsent }) });
      find("lu-train-pictures").querySelector(".lu-train-again:not([hidden])")?.focus();
      return;
    }
    const asked = draft.name.trim();
    const pictures = readPictures();
    const { id, name } = await submitTraining({
      model: find("lu-train-model").value,
      name: draft.name,
      trigger: draft.trigger,
      pictures,
      start_from: find("lu-train-start").value || null,
      strength: draft.strength,
      preserve: draft.keep !== "off",
      prior_prompts: draft.keep === "prior" ? (priorPrompts().length ? priorPrompts() : [AUTO]) : [],
      sample_prompts: draft.sample.trim() ? [draft.sample.trim()] : [],
    });
    forgetPictures(pictures);
    hasNamed = false;
    keep({ trigger: "", name: "", sample: "", prior: "", start: "" });
    sent(id);
    if (name !== undefined && name !== asked) toast(t("train.called", { name }));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { fields } = error;
    if (fields.start_from) loadLoras().catch(() => undefined); // it was deleted elsewhere
    showProblems(Object.keys(fields).length ? fields : { training: together(error.detail, error.advice) });
  } finally {
    isSending = false;
    drawForm();
  }
}

/** Messages of the server at their fields; one of no field stands above the button. */
function showProblems(given) {
  const { "sample_prompts.0": sample, ...rest } = given;
  const fields = sample ? { ...rest, sample } : rest;
  for (const [field, message] of Object.entries(fields)) {
    const [name, place] = field.split(".");
    if (name !== "prior_prompts" || !place) continue;
    delete fields[field];
    fields.prior_prompts ??= t("train.priorWrong", { place: Number(place) + 1, message });
  }
  const lacking = markPictures(fields);
  tellsLacking = lacking > 0;
  if (lacking) {
    fields.caption = t("train.lacking", { count: lacking }); // in sight with them, on a phone too
    delete fields["..."]; // the rest of them
  }
  const form = find("lu-train-form");
  const others = tellProblems(form, fields).filter(([field]) => !field.startsWith("pictures."));
  const more = others.map(([field, message]) => t("common.named", { name: field, value: message }));
  if (more.length) tellProblems(form, { ...fields, training: [fields.training, ...more].filter(Boolean).join(" ") });
  focusProblem(form);
}
