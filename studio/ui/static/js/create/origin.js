// Where the settings in the form came from, when that was not this visitor: a preset, a link.

import { checkPreset, importPreset, readPreset } from "../core/api.js";
import { find } from "../core/dom.js";
import { named, t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { said } from "../core/translate_server.js";
import { showView } from "../core/views.js";
import { setOrigin, tellReplaced, usePreset } from "./controls.js";
import { countInputs } from "./inputs.js";
import { missingLoras } from "./loras.js";
import { PREFIX, unpackPreset } from "./presetlink.js";

let shared = null; // the JSON of a link, until it is kept

export function mountOrigin() {
  find("lu-origin-close").addEventListener("click", () => setOrigin(null));
  find("lu-origin-keep").addEventListener("click", keep);
  addEventListener("hashchange", () => openLink());
}

/** Says where a preset comes from in few words. */
export function originText(preset) {
  const { kind, name } = preset.origin;
  const words = {
    shipped: t("origin.shipped"),
    made: t("origin.made"),
    file: name ? t("origin.file", { name }) : t("origin.someFile"),
    link: t("origin.link"),
    hub: t("origin.hub", { name }),
  };
  return words[kind];
}

/** What is shipped is called in the visitor's language; what somebody made, or a link that failed, as it is. */
export const titleOf = ({ title, origin }) => (origin?.kind === "shipped" ? named(title) : title);

/** Fills the form with a preset and says so; a model that is not here is named instead. */
export function fillFrom(preset, { keepsImages = true } = {}) {
  const origins = [originText(preset), preset.author && t("origin.by", { author: preset.author })];
  const origin = t("common.sentence", { text: origins.filter(Boolean).join(", ") });
  showView("create");
  if (preset.missing) {
    const name = preset.missing.title ? `${preset.missing.title} (${preset.missing.model})` : preset.missing.model;
    note(preset, together(origin, t("origin.missing", { model: name }), said(preset.missing, "advice")), "bad");
    return false;
  }
  usePreset(preset.recipe, { keepsImages });
  const missing = missingLoras(preset.recipe.loras ?? []);
  const lacks = missing.length ? t("origin.missingLoras", { names: missing.join(", ") }) : "";
  const { strength = null } = preset.recipe;
  const waits = strength === null || countInputs() > 0 ? "" : t("origin.strength", { strength });
  note(preset, together(origin, t("origin.filled"), lacks, waits, preset.needs_picture ? t("origin.addPicture") : ""));
  tellReplaced(t("toast.presetFilled", { title: titleOf(preset) }));
  return true;
}

function note(preset, text, tone = "calm") {
  const id = tone === "bad" || shared ? null : (preset.id ?? null);
  setOrigin({ id, title: titleOf(preset), text, tone, isShared: Boolean(shared) });
  find("lu-origin").scrollIntoView({ block: "nearest" }); // on a phone the form is below the picture
}

/** `?preset=<id>` and `#recipe=<…>`: nothing is made before somebody looked at it. */
export async function openLink() {
  const id = new URLSearchParams(location.search).get("preset");
  const { hash } = location;
  if (id === null && !hash.startsWith(PREFIX)) return;
  history.replaceState({}, "", location.pathname); // a refresh keeps what was changed since
  try {
    shared = hash.startsWith(PREFIX) ? await unpackPreset(hash).catch(() => null) : null;
    if (hash.startsWith(PREFIX) && shared === null) throw new Error(t("origin.badLink"));
    fillFrom(shared === null ? await readPreset(id) : await checkPreset(shared));
  } catch (error) {
    shared = null;
    note({ title: t("origin.noLink") }, together(error.message, error.advice), "bad");
  }
}

export function forgetShared() {
  shared = null;
}

async function keep() {
  try {
    const { known } = await importPreset(new Blob([shared]), { origin: "link" });
    shared = null;
    find("lu-origin-keep").hidden = true;
    toast(known.length ? t("preset.known", { count: 1, title: titleOf(known[0]) }) : t("origin.kept"));
  } catch (error) {
    toast(together(error.message, error.advice));
  }
}
