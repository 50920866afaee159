// LoRA files in the System view: which there are, which cannot be used and why, one more, one less, one to take home.
// Not here: using them (loras.js).

import { deleteLora, loraFile, readSystem } from "../core/api.js";
import { attempt } from "../core/attempt.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { bytes } from "../core/format.js";
import { expertName } from "../core/settings.js";
import { state } from "../core/store.js";
import { t, together } from "../core/text.js";
import { said } from "../core/translate_server.js";
import { toast } from "../core/toasts.js";
import { sendLora } from "../create/lorafile.js";
import { loadLoras } from "../create/loras.js";

export function mountLoraFiles() {
  const file = find("lu-lora-file");
  find("lu-lora-add").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    const [chosen] = file.files;
    file.value = ""; // the same file may be chosen again
    if (chosen) attempt("lu-lora-message", () => send(chosen));
  });
}

export async function openLoraFiles() {
  await attempt("lu-lora-message", async () => {
    await loadLoras();
    draw();
    const { data_dir } = await readSystem();
    setText(find("lu-lora-note"), t("loras.howTo", { folder: `${data_dir}/loras` }));
  });
}

async function send(file) {
  const { title } = await sendLora(file, find("lu-lora-add"), find("lu-lora-state"));
  toast(t("loras.added", { name: title }));
  await refresh();
}

async function remove({ ref, title }) {
  if (!window.confirm(t("loras.confirmDelete", { name: title }))) return;
  await deleteLora(ref);
  toast(t("loras.deleted", { name: title }));
  await refresh();
  find("lu-lora-add").focus();
}

async function refresh() {
  await loadLoras();
  draw();
}

function draw() {
  const name = ({ title, ref }) => (title === ref ? ref : `${title} · ${ref}`);
  const files = [...state.loras, ...state.unusableLoras.map((lora) => ({ title: lora.ref, ...lora }))];
  keyed(find("lu-lora-files"), files, {
    key: ({ ref, size, reason }) => `${ref} ${size} ${reason ?? ""}`,
    create: (lora) =>
      el(
        "tr",
        {},
        el("td", {}, name(lora)),
        lora.reason
          ? el("td.lu-lora-reason", { colspan: 2 }, together(t("loras.unusable"), said(lora, "reason")))
          : el("td", {}, familyOf(lora)),
        ...(lora.reason ? [] : [el("td.lu-num", {}, bytes(lora.size))]),
        el(
          "td",
          {},
          el("div.lu-lora-acts", {}, ...(lora.reason ? [] : [downloadOf(lora)]), removalOf(lora)),
        ),
      ),
  });
  find("lu-lora-files").closest("table").hidden = !files.length;
}

const downloadOf = ({ ref, title }) =>
  el(
    "a.lu-icon-button",
    { href: loraFile(ref), download: "", title: t("loras.download"), "aria-label": t("loras.downloadOf", { name: title }) },
    icon("download"),
  );

const removalOf = (lora) =>
  el(
    "button.lu-icon-button",
    {
      type: "button",
      title: t("common.remove"),
      "aria-label": t("loras.delete", { name: lora.title }),
      onclick: () => attempt("lu-lora-message", () => remove(lora)),
    },
    icon("trash"),
  );

/** The family, the kind of adapter unless it is the usual one, the expert that the file is for, and whether it fits. */
const familyOf = ({ family, kind, expert, models }) =>
  [
    family,
    kind === "LoRA" ? "" : kind,
    expert ? expertName(expert) : "",
    models.length ? "" : t("loras.fitsNone"),
  ]
    .filter(Boolean)
    .join(" · ");
