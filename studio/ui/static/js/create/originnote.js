// The note above the prompt that says where the settings came from: a preset or a link, as long as they are its own.
// Not here: filling the form with one (origin.js).

import { find, setText } from "../core/dom.js";
import { t } from "../core/text.js";

/** With another model or prompt the result is no longer the preset's; other settings may change. */
export const isOwn = (origin, { model, prompt }) =>
  origin.tone === "bad" || (origin.model === model && origin.prompt.trim() === prompt.trim());

/** `origin` is what `setOrigin` of controls.js was given, or null; `recipe` is what Generate would send. */
export function drawOrigin(origin, recipe) {
  const note = find("lu-origin");
  note.hidden = !origin;
  if (!origin) return;
  const stays = isOwn(origin, recipe);
  note.dataset.tone = origin.tone;
  setText(find("lu-origin-title"), stays ? origin.title : t("origin.changed", { title: origin.title }));
  setText(find("lu-origin-text"), stays ? origin.text : t("origin.changedText"));
  find("lu-origin-keep").hidden = !origin.isShared;
}
