// Models' files in the System view: what is here, downloads, what fits, the default, the hub's token. Not here: sizes
// and what is in memory (system.js).

import {
  addRepository,
  askAccess,
  chooseDefault,
  deleteModelFiles,
  forgetHubToken,
  keepHubToken,
  pauseDownload,
  readModelFiles,
  removeModel,
  startDownload,
} from "../core/api.js";
import { attempt } from "../core/attempt.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { bytes } from "../core/format.js";
import { loadModels } from "../core/stream.js";
import { named, t, together } from "../core/text.js";
import { said } from "../core/translate_server.js";
import { toast } from "../core/toasts.js";
import { sendModel, waitForModel } from "../create/modelfile.js";
import { bring, drawArrivals, readPlace } from "./arrivals.js";

const MESSAGE = "lu-model-message";
const ADD_MESSAGE = "lu-model-add-message";

/** Whether the hub says that a model is gated, and to this studio: asked once a page for each. */
const access = new Map();

let answer = { models: [], arrivals: [], default: null, fixed_default: null, token: "" };

export function mountModelFiles() {
  find("lu-sys-models").addEventListener("click", (event) => {
    const button = /** @type {Element} */ (event.target).closest("[data-act]");
    const card = button?.closest("[data-model]");
    const model = answer.models.find(({ id }) => id === card?.dataset.model);
    if (model) attempt(MESSAGE, () => ACTS[button.dataset.act](model));
  });
  const file = find("lu-model-file");
  find("lu-model-add-file").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    const [chosen] = file.files;
    file.value = ""; // the same file may be chosen again
    if (chosen) attempt(ADD_MESSAGE, () => bringIn(chosen));
  });
  find("lu-model-add-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(ADD_MESSAGE, addRepo);
  });
  find("lu-hub-token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(MESSAGE, sendToken);
  });
  find("lu-hub-token-forget").addEventListener("click", () => attempt(MESSAGE, forgetToken));
}

/** Each model's files below its sizes; visitors who do not look after the machine see the sizes alone. */
export async function drawModelFiles() {
  answer = await readModelFiles();
  for (const card of find("lu-sys-models").querySelectorAll("[data-model]")) {
    const model = answer.models.find(({ id }) => id === card.dataset.model);
    if (model) drawCard(card, model);
  }
  drawArrivals(answer.arrivals);
  setText(find("lu-hub-token-state"), t(`hubToken.${answer.token || "none"}`));
  find("lu-hub-token-forget").hidden = answer.token !== "studio";
  setText(find("lu-models-free"), t("models.free", { free: bytes(answer.free_bytes), folder: answer.models_dir }));
}

function drawCard(card, model) {
  const facts = [
    { key: "licence", text: model.licence, url: model.url },
    { key: "disk", text: diskText(model) },
    { key: "weights", text: model.weights === "full" ? "" : t(`weights.${model.weights}`) },
    { key: "fit", text: fitText(model), warns: model.fit && !model.fit.fits },
    { key: "access", text: accessText(model), url: model.url, warns: access.get(model.id)?.is_granted === false },
    { key: "default", text: isDefault(model) ? t("models.isDefault") : "" },
  ].filter(({ text }) => text);
  keyed(card.querySelector(".lu-model-facts"), facts, {
    key: ({ key, url }) => `${key} ${url ?? ""}`,
    create: ({ url }) => (url ? el("a", { href: url, target: "_blank", rel: "noopener" }) : el("span")),
    update: (element, { text, warns }) => {
      setText(element, text);
      element.classList.toggle("lu-warns", Boolean(warns));
    },
  });
  keyed(card.querySelector(".lu-model-acts"), actsOf(model), {
    key: ({ act, label }) => `${act} ${label}`,
    create: ({ act, label, sign }) =>
      el("button.lu-button", { type: "button", "data-act": act, "aria-label": t("common.named", { name: label, value: named(model.title) }) }, icon(sign), el("span", {}, label)),
  });
}

const isDefault = ({ id }) => id === (answer.fixed_default ?? answer.default);

function diskText({ origin, disk_bytes, partial_bytes, download }) {
  const { state, done_bytes, total_bytes } = download ?? {};
  if (state === "running" && total_bytes) {
    const percent = Math.floor((100 * done_bytes) / total_bytes);
    return t("models.downloading", { done: bytes(done_bytes), total: bytes(total_bytes), percent });
  }
  if (state === "running") return t("models.asking");
  if (state === "waiting") return t("models.waiting");
  if (state === "failed") return said(download, "error");
  if (partial_bytes) return t("models.partial", { size: bytes(partial_bytes) });
  if (disk_bytes) return t(origin === "demo" ? "models.shipped" : "models.onDisk", { size: bytes(disk_bytes) });
  return t("models.notHere");
}

/** Where no plan ships for a model in int8, it is that of its weights in full. */
function fitText({ fit, weights }) {
  if (!fit) return "";
  const size = t("models.ofChip", { needed: bytes(fit.needed_bytes), chip: bytes(fit.chip_bytes) });
  return together(said(fit, "note"), size, fit.weights === weights ? "" : t("models.lessInInt8"));
}

function accessText({ id, origin }) {
  const known = access.get(id);
  if (origin !== "hub" || !known?.is_gated) return "";
  return t(known.is_granted ? "models.granted" : "models.gated");
}

function actsOf(model) {
  const state = model.download?.state;
  const isUnderWay = state === "running" || state === "waiting";
  const acts = [];
  if (model.origin === "hub" && isUnderWay) acts.push({ act: "pause", label: t("models.pause"), sign: "pause" });
  else if (model.origin === "hub" && (!model.is_here || model.partial_bytes)) {
    acts.push({ act: "download", label: t(model.partial_bytes ? "models.resume" : "models.download"), sign: "download" });
  }
  if (!answer.fixed_default && !isDefault(model)) acts.push({ act: "choose", label: t("models.makeDefault"), sign: "star" });
  if (!answer.fixed_default && isDefault(model)) acts.push({ act: "unchoose", label: t("models.noDefault"), sign: "close" });
  const isHeld = model.origin === "hub" && (model.is_here || model.partial_bytes);
  if (isHeld && !isUnderWay) acts.push({ act: "remove", label: t("models.delete"), sign: "trash" });
  if (model.is_own && !isUnderWay) acts.push({ act: "discard", label: t("models.discard"), sign: "close" });
  return acts;
}

const ACTS = { download, pause, remove, discard, choose: ({ id }) => setDefault(id), unchoose: () => setDefault(null) };

async function download(model) {
  if (model.fit && !model.fit.fits && !confirm(t("models.confirmUnfit", { name: named(model.title), note: said(model.fit, "note") }))) return;
  access.set(model.id, await askAccess(model.id));
  if (access.get(model.id).is_granted === false) {
    await drawModelFiles();
    setText(find(MESSAGE), t("models.acceptFirst", { url: model.url }));
    return;
  }
  await startDownload(model.id);
  await drawModelFiles();
}

async function pause(model) {
  await pauseDownload(model.id);
  await drawModelFiles();
}

async function remove(model) {
  const size = bytes(model.disk_bytes + model.partial_bytes);
  if (!confirm(t("models.confirmDelete", { name: named(model.title), size }))) return;
  const freed = await deleteModelFiles(model.id);
  toast(t("system.freed", { size: bytes(freed.bytes) }));
  await drawModelFiles();
}

async function discard(model) {
  if (!confirm(t("models.confirmDiscard", { name: named(model.title) }))) return;
  const freed = await removeModel(model.id);
  toast(t("system.freed", { size: bytes(freed.bytes) }));
  await loadModels();
}

async function setDefault(id) {
  await chooseDefault(id);
  await drawModelFiles();
}

async function bringIn(file) {
  const button = find("lu-model-add-file");
  button.disabled = true;
  try {
    const id = await sendModel(file, find("lu-model-state"));
    toast(id ? t("models.added", { name: id }) : t("models.half"));
  } finally {
    button.disabled = false;
  }
}

/** A file is downloaded while the page goes on; a repository's configs are read first, which takes seconds. */
async function addRepo() {
  const [field, button] = [find("lu-model-repo"), find("lu-model-add")];
  const place = readPlace(field.value.trim());
  if (place) {
    await bring(place);
    field.value = "";
    await drawModelFiles();
    return;
  }
  button.disabled = true;
  setText(find("lu-model-state"), t("models.asking"));
  try {
    const { id } = await addRepository(field.value.trim());
    await waitForModel(id);
    field.value = "";
    toast(t("models.added", { name: id }));
  } finally {
    button.disabled = false;
    setText(find("lu-model-state"), "");
  }
}

async function sendToken() {
  const field = find("lu-hub-token-field");
  await keepHubToken(field.value);
  field.value = "";
  access.clear();
  await drawModelFiles();
}

async function forgetToken() {
  await forgetHubToken();
  access.clear();
  await drawModelFiles();
}
