// What is said of a file on its way to be a model or a LoRA (REST's `arrivals`).

import { bytes } from "./format.js";
import { t } from "./text.js";
import { said } from "./translate_server.js";

/** How far it is, or how it ended. */
export function arrivalText({ state, done_bytes, total_bytes, made, ...arrival }) {
  if (state === "failed") return said(arrival, "error");
  if (state === "done") return made ? t("models.added", { name: made }) : t("models.half");
  if (state === "waiting") return t("models.waiting");
  if (!total_bytes) return t(state === "paused" ? "models.stopped" : "models.looking");
  const percent = Math.floor((100 * done_bytes) / total_bytes);
  const far = t("models.downloading", { done: bytes(done_bytes), total: bytes(total_bytes), percent });
  return state === "paused" ? `${t("models.stopped")} ${far}` : far;
}

