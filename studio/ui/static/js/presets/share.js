// The share dialog: a link with the preset inside, a link on this server, a QR code, the file.

import { at, drawCode, presetPath } from "../core/api.js";
import { copyText } from "../core/clipboard.js";
import { find, setText } from "../core/dom.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { titleOf } from "../create/origin.js";
import { packPreset } from "../create/presetlink.js";

export function mountShare() {
  const dialog = find("lu-share");
  dialog.addEventListener("click", async (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
    const copy = event.target.closest("[data-copy]");
    if (!copy) return;
    await copyText(find(copy.dataset.copy).value);
    toast(t("share.copied"));
  });
}

export async function openShare(preset) {
  const here = new URL(at(""));
  const link = here.href + (await packPreset(preset));
  here.searchParams.set("preset", preset.id);
  setText(find("lu-share-heading"), t("share.title", { title: titleOf(preset) }));
  find("lu-share-self").value = link;
  find("lu-share-here").value = here.href;
  find("lu-share-file").href = at(`${presetPath(preset.id)}/file`);
  find("lu-share").showModal();
  await showCode(link);
}

async function showCode(link) {
  const image = find("lu-share-code");
  image.hidden = true;
  setText(find("lu-share-code-note"), "");
  try {
    const svg = await drawCode(link);
    image.src = `data:image/svg+xml,${encodeURIComponent(svg)}`;
    image.hidden = false;
  } catch (error) {
    setText(find("lu-share-code-note"), together(error.message, error.advice));
  }
}
