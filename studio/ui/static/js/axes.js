// What may change along an axis of a grid, as people read it.

import { t } from "./text.js";

const FIELDS = [
  "prompt",
  "seed",
  "steps",
  "guidance_scale",
  "guidance_scale_2",
  "scheduler",
  "flow_shift",
  "shape",
  "model",
];

const nameOf = (field) => (FIELDS.includes(field) ? t(`setting.${field}`) : field);

/** [{field, name}] that this model can take; sizes and models only where there are several. */
export function axesOf(model, models) {
  const has = {
    guidance_scale_2: model.defaults.guidance_scale_2 !== null,
    flow_shift: model.defaults.flow_shift !== null,
    scheduler: model.schedulers.length > 1,
    shape: model.shapes.length > 1,
    model: models.length > 1,
  };
  return FIELDS.filter((field) => has[field] ?? true).map((field) => ({ field, name: nameOf(field) }));
}

/** Every value of a field that has only so many, as text for its axis; null for numbers and words. */
export function allValues(field, model, models) {
  if (field === "scheduler") return model.schedulers.join(", ");
  if (field === "shape") return model.shapes.map(({ shape }) => shape).join(", ");
  if (field === "model") return models.map(({ id }) => id).join(", ");
  return null;
}

export const axisText = (axis) => (axis ? t("common.named", { name: nameOf(axis.field), value: axis.values }) : null);
