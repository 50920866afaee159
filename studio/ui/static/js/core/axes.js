// What may change along an axis of a grid, as people read it.

import { t } from "./text.js";

const FIELDS = [
  "prompt",
  "seed",
  "steps",
  "guidance_scale",
  "guidance_scale_2",
  "scheduler",
  "step_cache",
  "flow_shift",
  "strength",
  "lora_scale",
  "shape",
  "model",
];

const nameOf = ({ field, lora }) =>
  FIELDS.includes(field) ? (lora ? t("setting.scaleOf", { lora }) : t(`setting.${field}`)) : field;

/** Names what changes: the scale of each LoRA is something of its own. */
export const axisId = ({ field, lora }) => (lora ? `${field} ${lora}` : field);

/**
 * [{field, lora, name}] that this model can take with the recipe's LoRAs and pictures; sizes and models only where there
 * are several.
 * @param {any} model
 * @param {any[]} models
 * @param {Recipe} recipe
 */
export function axesOf(model, models, { loras, images }) {
  const has = {
    guidance_scale_2: model.defaults.guidance_scale_2 !== null,
    flow_shift: model.defaults.flow_shift !== null,
    step_cache: Boolean(model.step_cache),
    strength: model.defaults.strength !== null && images.length > 0,
    scheduler: model.schedulers.length > 1,
    shape: model.shapes.length > 1,
    model: models.length > 1,
  };
  const axes = FIELDS.filter((field) => has[field] ?? true).flatMap((field) =>
    field === "lora_scale" ? loras.map(({ ref }) => ({ field, lora: ref })) : [{ field }],
  );
  return axes.map((axis) => ({ ...axis, name: nameOf(axis) }));
}

/** Every value of a field that has only so many, as text for its axis; null for numbers and words. */
export function allValues(field, model, models) {
  if (field === "scheduler") return model.schedulers.join(", ");
  if (field === "step_cache") return ["off", ...Object.keys(model.step_cache)].join(", ");
  if (field === "shape") return model.shapes.map(({ shape }) => shape).join(", ");
  if (field === "model") return models.map(({ id }) => id).join(", ");
  return null;
}

export const axisText = (axis) => (axis ? t("common.named", { name: nameOf(axis), value: axis.values }) : null);
