// Asks before a click brings gigabytes onto the server: how many, and whether there is room. Once a page for each model.

import { readDownload } from "../core/api.js";
import { bytes } from "../core/format.js";
import { modelOf } from "../core/store.js";
import { t } from "../core/text.js";

const agreed = new Set();

/** @param {string} id */
export async function mayDownload(id) {
  const model = modelOf(id);
  if (!model || model.is_here || agreed.has(id)) return true;
  if (!confirm(questionOf(model, await readDownload(id)))) return false;
  agreed.add(id);
  return true;
}

function questionOf({ title }, { bytes: size, free_bytes: free }) {
  if (size === null) return t("model.confirmUnknown", { title, free: bytes(free) });
  const id = size > free ? "model.confirmNoRoom" : "model.confirmDownload";
  return t(id, { title, size: bytes(size), free: bytes(free) });
}
