// How much a recipe's later steps may reuse of earlier ones, and what that saves. Only some models have it.

import { el, find, keyed, setText } from "../core/dom.js";
import { percent } from "../core/format.js";
import { t } from "../core/text.js";

const OFF = "";

/** What a strength is called; numbers are their own name. */
const strengthName = (strength) => {
  const names = { [OFF]: t("cache.off"), mild: t("cache.mild"), strong: t("cache.strong"), taylor: t("cache.taylor") };
  return names[strength] ?? strength;
};

/** @param {any} model */
export function drawStepCache(model, { step_cache }) {
  const field = find("lu-step_cache");
  field.closest("[data-field]").hidden = !model.step_cache;
  if (!model.step_cache) return;
  const chosen = step_cache ?? OFF;
  const known = [OFF, ...Object.keys(model.step_cache)];
  keyed(field, known.includes(chosen) ? known : [...known, chosen], {
    key: (name) => name,
    create: (name) => el("option", { value: name }, strengthName(name)),
  });
  field.value = chosen;
  const share = model.step_cache[chosen];
  setText(find("lu-step_cache-note"), share === undefined ? t("cache.hint") : t("cache.saves", { share: percent(share) }));
}
