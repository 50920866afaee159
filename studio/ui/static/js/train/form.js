// What to learn from the pictures: trigger, name, model, strength, what to keep, and what that takes.

import { ApiError, readTrainingChoices, submitTraining } from "../core/api.js";
import { arrowsChoose, el, find, keyed, setText } from "../core/dom.js";
import { moneyText, seconds, sentence } from "../core/format.js";
import { recallJson, remember } from "../core/memory.js";
import { locale, named, t, together } from "../core/text.js";
import { countPictures, forgetPictures, mountPictures, picturesSent, readPictures, showPictureProblems } from "./pictures.js";

const KEY = "lumesh.train";
const LINES = ["trigger", "name", "sample", "prior"];
const CHOSEN = ["strength", "keep"];

let choices = null;
let draft = { trigger: "", name: "", sample: "", prior: "", model: "", strength: "usual", keep: "scenes" };
let hasNamed = false; // by hand; until then the name follows the trigger
let isSending = false;

/** `sent(id)` is called with each training that was queued. */
export function mountForm(sent) {
  draft = { ...draft, ...recallJson(KEY, {}) };
  hasNamed = draft.name !== "" && draft.name !== draft.trigger;
  mountPictures(drawForm);
  for (const name of LINES)
    find(`lu-train-${name}`).addEventListener("input", (event) => {
      if (name === "name") hasNamed = event.currentTarget.value !== "";
      keep({ [name]: event.currentTarget.value });
    });
  find("lu-train-model").addEventListener("change", (event) => keep({ model: event.currentTarget.value }));
  for (const name of CHOSEN) {
    arrowsChoose(find(`lu-train-${name}`));
    find(`lu-train-${name}`).addEventListener("click", (event) => {
      const key = event.target.closest("[role=radio]")?.dataset.key;
      if (key) keep({ [name]: key });
    });
  }
  find("lu-train-form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit(sent);
  });
  drawForm();
}

/** Models come and go, and each training makes the next one's time better known. */
export async function loadChoices() {
  choices = await readTrainingChoices();
  drawForm();
}

/** Fills the form from a training as `readTraining` answers it. */
export async function fillForm({ trigger, model, strength }) {
  keep({ trigger, model, strength });
  find("lu-train-trigger").focus();
}

function keep(values) {
  draft = { ...draft, ...values };
  if (!hasNamed) draft.name = draft.trigger.trim();
  remember(KEY, JSON.stringify(draft));
  drawForm();
}

function drawForm() {
  for (const name of LINES) {
    const line = find(`lu-train-${name}`);
    if (line.value !== draft[name]) line.value = draft[name];
  }
  const models = choices?.models ?? [];
  keyed(find("lu-train-model"), models, {
    key: ({ id }) => id,
    create: ({ id }) => el("option", { value: id }),
    update: (option, { title }) => setText(option, named(title)),
  });
  const model = models.find(({ id }) => id === draft.model) ?? models.find(({ id }) => id === choices.default);
  if (model) find("lu-train-model").value = model.id;
  for (const name of CHOSEN)
    for (const button of find(`lu-train-${name}`).querySelectorAll("[role=radio]")) {
      const isChosen = button.dataset.key === draft[name];
      button.setAttribute("aria-checked", String(isChosen));
      button.tabIndex = isChosen ? 0 : -1;
    }
  find("lu-train-prior-row").hidden = draft.keep !== "prior";
  const numbers = model?.strengths[draft.strength];
  setText(find("lu-train-numbers"), numbers ? numbersText(numbers) : "");
  setText(find("lu-train-keep-note"), model ? keepText(model.prior) : "");
  setText(find("lu-train-cost"), model ? costText(numbers, model.prior) : "");
  find("lu-train-go").setAttribute("aria-disabled", String(isSending));
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
  const like = learning.is_about ? t("train.takenFromOthers") : "";
  if (count && prior.picture.seconds === null) return together(t("train.takesThen", { time: seconds(learning.seconds) }), like);
  const sum = (name) => learning[name] + count * prior.picture[name];
  const time = seconds(sum("seconds"));
  if (learning.cost_usd === null) return together(t("train.takes", { time }), like);
  return together(t("train.takesCosting", { time, cost: moneyText(sum("cost_usd")) }), like);
}

async function submit(sent) {
  if (isSending) return;
  showProblems({});
  if (!countPictures()) {
    showProblems({ pictures: t("train.noPictures") });
    return;
  }
  isSending = true;
  drawForm();
  try {
    if (!(await picturesSent())) return;
    const { id } = await submitTraining({
      model: find("lu-train-model").value,
      name: draft.name,
      trigger: draft.trigger,
      pictures: readPictures(),
      strength: draft.strength,
      preserve: draft.keep !== "off",
      prior_prompts: draft.keep === "prior" ? (priorPrompts().length ? priorPrompts() : ["auto"]) : [],
      sample_prompts: draft.sample.trim() ? [draft.sample.trim()] : [],
    });
    forgetPictures();
    hasNamed = false;
    keep({ trigger: "", name: "", sample: "", prior: "" });
    sent(id);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { fields } = error;
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
  const places = [...document.querySelectorAll("#lu-train-form [data-message]")];
  const known = new Set(places.map(({ dataset }) => dataset.message));
  const others = Object.entries(fields).filter(([field]) => !known.has(field) && !field.startsWith("pictures."));
  const more = others.map(([field, message]) => t("common.named", { name: field, value: message })).join(" ");
  for (const place of places) {
    const name = place.dataset.message;
    const message = name === "training" ? [fields.training, more].filter(Boolean).join(" ") : (fields[name] ?? "");
    setText(place, sentence(message));
    place.closest("[data-field]")?.classList.toggle("lu-wrong", Boolean(message));
  }
  showPictureProblems(fields);
  const first = places.find((place) => place.textContent);
  first?.closest("[data-field]")?.querySelector("input:not([hidden]), textarea, select, button")?.focus();
}
