// Checkpoints in one file that somebody brings, chosen in the System view or dropped on the page: told from LoRAs by the
// header, sent, and chosen once they are there. Not here: what is done with models (system/modelfiles.js).

import { uploadModel } from "../core/api.js";
import { el, find, setText } from "../core/dom.js";
import { percent } from "../core/format.js";
import { isOperator, modelOf } from "../core/store.js";
import { loadModels } from "../core/stream.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { chooseModel, clearProblem, showProblems } from "./controls.js";
import { closeRecipe, openPanel, panelHead } from "./recipes.js";

const LENGTH_BYTES = 8;
const MAX_HEADER_BYTES = 50_000_000;
const AGAIN_MS = 400;
const TRIES = 10;
const OF_LORAS = /(^|[._])(lora|lokr|loha|hada|dora|diff|diff_b)([._]|$)/;

export const isQuantised = (file) => /\.gguf$/i.test(file.name);

/** Whether a file holds a whole model, by the names in its header; what cannot be read is none. */
export async function isCheckpoint(file) {
  if (isQuantised(file)) return true; // no LoRA comes as one; the server says what it is
  try {
    const length = new DataView(await file.slice(0, LENGTH_BYTES).arrayBuffer()).getBigUint64(0, true);
    if (length > MAX_HEADER_BYTES) return false;
    const header = JSON.parse(await file.slice(LENGTH_BYTES, LENGTH_BYTES + Number(length)).text());
    const names = Object.keys(header).filter((name) => name !== "__metadata__");
    return names.length > 0 && !names.some((name) => OF_LORAS.test(name));
  } catch {
    return false;
  }
}

/** Sends a checkpoint; `place` says how far it is. Returns the id of the model, which can be chosen then. */
export async function sendModel(file, place) {
  const onPercent = (done) => setText(place, t("models.sending", { name: file.name, percent: percent(done / 100) }));
  try {
    const { id } = await uploadModel(file, onPercent);
    if (id) await waitForModel(id);
    return id;
  } finally {
    setText(place, "");
  }
}

/** A checkpoint that was dropped: kept for everybody, so only when somebody says so; then it is the chosen model. */
export function offerModel(file) {
  const take = () => {
    closeRecipe();
    bringIn(file);
  };
  openPanel({
    tone: isOperator() ? "good" : "none",
    children: [
      panelHead(t("models.offer"), "file"),
      el("p.lu-recipe-facts", {}, t(isOperator() ? "models.offerText" : "models.offerAsk", { name: file.name })),
      isOperator() &&
        el(
          "div.lu-recipe-actions",
          {},
          el("button.lu-button.lu-accent", { type: "button", id: "lu-model-take", onclick: take }, t("models.take")),
        ),
    ].filter(Boolean),
  });
}

async function bringIn(file) {
  clearProblem("model");
  try {
    const id = await sendModel(file, find("lu-model-sent"));
    if (id) chooseModel(id);
    toast(id ? t("models.added", { name: modelOf(id)?.title ?? id }) : t("models.half"));
  } catch (error) {
    showProblems({ model: t("common.file", { name: file.name, text: together(error.message, error.advice) }) });
  }
}

/** The server reads its folder at most once a second. */
export async function waitForModel(id) {
  for (let tries = 0; tries < TRIES && !modelOf(id); tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    await loadModels();
  }
}
