// Files on their way to be models or LoRAs: how far each is, stopped and gone on with. Not here: models' own downloads
// (modelfiles.js).

import { arrivalText } from "../core/arrivaltext.js";
import { bringModel, continueArrival, stopArrival } from "../core/api.js";
import { attempt } from "../core/attempt.js";
import { el, find, icon, keyed } from "../core/dom.js";
import { loadModels } from "../core/stream.js";
import { t } from "../core/text.js";
import { toast } from "../core/toasts.js";

const MESSAGE = "lu-model-add-message";
const OF_REPOSITORY = /^([\w.-]+\/[\w.-]+)[\s/]+(\S.*\.(?:safetensors|gguf))$/i;

const told = new Set(); // arrivals whose end was said on this page

/** Reads what was typed: a URL, or a repository and a file in it; null for a repository alone. */
export function readPlace(text) {
  if (text.includes("://")) return { place: text };
  const [, place, file] = OF_REPOSITORY.exec(text) ?? [];
  return place ? { place, file } : null;
}

export async function bring(place) {
  told.delete((await bringModel(place)).id);
}

/** Draws the list anew; a model that has arrived since is in the catalogue now. */
export function drawArrivals(arrivals) {
  keyed(find("lu-arrivals"), arrivals, { key: (one) => JSON.stringify(one), create });
  for (const { id, kind, state, made } of arrivals) {
    if (state !== "done" || told.has(id)) continue;
    told.add(id);
    if (kind === "model") {
      toast(made ? t("models.added", { name: made }) : t("models.half"));
      loadModels();
    }
  }
}

function create(arrival) {
  const isUnderWay = arrival.state === "running" || arrival.state === "waiting";
  const act = (label, sign, ask) =>
    el(
      "button.lu-button",
      {
        type: "button",
        "aria-label": t("common.named", { name: label, value: arrival.title }),
        onclick: () => attempt(MESSAGE, () => ask(arrival.id)),
      },
      icon(sign),
      el("span", {}, label),
    );
  const parts = [
    el("span.lu-arrival-title", {}, arrival.title),
    el("span.lu-model-note.lu-num", { role: "status" }, arrivalText(arrival)),
    isUnderWay && act(t("models.pause"), "pause", stopArrival),
    ["paused", "failed"].includes(arrival.state) && act(t("models.resume"), "download", continueArrival),
    !isUnderWay && act(t("models.dismiss"), "close", stopArrival),
  ];
  return el("li.lu-arrival", { data: { state: arrival.state } }, ...parts.filter(Boolean));
}
