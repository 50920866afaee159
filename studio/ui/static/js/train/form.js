// What to learn from the pictures: trigger, name, model, strength, and what it will take before anybody presses Train.

import { ApiError, readTrainingChoices, submitTraining } from "../core/api.js";
import { arrowsChoose, el, find, keyed, setText } from "../core/dom.js";
import { moneyText, seconds, sentence } from "../core/format.js";
import { recallJson, remember } from "../core/memory.js";
import { locale, named, t, together } from "../core/text.js";
import { countPictures, forgetPictures, mountPictures, picturesSent, readPictures, showPictureProblems } from "./pictures.js";

const KEY = "lumesh.train";
const LINES = ["trigger", "name", "sample"];

let choices = null;
let draft = { trigger: "", name: "", sample: "", model: "", strength: "usual" };
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
  arrowsChoose(find("lu-train-strength"));
  find("lu-train-strength").addEventListener("click", (event) => {
    const strength = event.target.closest("[role=radio]")?.dataset.key;
    if (strength) keep({ strength });
  });
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
  for (const button of find("lu-train-strength").querySelectorAll("[role=radio]")) {
    const isChosen = button.dataset.key === draft.strength;
    button.setAttribute("aria-checked", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
  }
  const numbers = model?.strengths[draft.strength];
  setText(find("lu-train-numbers"), numbers ? numbersText(numbers) : "");
  setText(find("lu-train-cost"), numbers ? costText(numbers) : "");
  find("lu-train-go").setAttribute("aria-disabled", String(isSending));
}

/** The numbers behind a strength, as whoever knows them writes them. */
export const numbersText = ({ steps, rank, learning_rate }) =>
  t("train.numbers", { steps, rank, rate: learning_rate.toLocaleString(locale, { maximumSignificantDigits: 3 }) });

function costText(numbers) {
  if (numbers.seconds === null) return t("train.unknownTime");
  const time = t("train.takes", { time: seconds(numbers.seconds) });
  return numbers.cost_usd === null ? time : t("common.file", { name: time, text: moneyText(numbers.cost_usd) });
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
      sample_prompts: draft.sample.trim() ? [draft.sample.trim()] : [],
    });
    forgetPictures();
    hasNamed = false;
    keep({ trigger: "", name: "", sample: "" });
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
  first?.closest("[data-field]")?.querySelector("input:not([hidden]), select, button")?.focus();
}
