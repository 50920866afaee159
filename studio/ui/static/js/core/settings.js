// An output's settings as people read them: one list for one output alone and for two side by side.

import { axisText } from "./axes.js";
import { capitalized, schedulerName, seconds, shapeName } from "./format.js";
import { modelOf } from "./store.js";
import { has, locale, t } from "./text.js";

const EXPERTS = { high: t("loras.expertHigh"), low: t("loras.expertLow"), both: t("loras.expertBoth") };

/** An expert of a model that has two, as a recipe names it. */
export const expertName = (expert) => EXPERTS[expert] ?? expert;

export const loraText = ({ ref, scale, expert }) =>
  expert && expert !== "both"
    ? t("setting.loraOfExpert", { ref, scale, expert: expertName(expert) })
    : t("setting.lora", { ref, scale });

/**
 * [its id, how to read it]; a setting that the model does not have is null.
 * @type {[string, (output: any) => string | null][]}
 */
const SETTINGS = [
  ["prompt", ({ recipe }) => recipe.prompt],
  ["x", ({ grid }) => axisText(grid?.x)],
  ["y", ({ grid }) => axisText(grid?.y)],
  ["z", ({ grid }) => axisText(grid?.z)],
  ["negative_prompt", ({ recipe }) => recipe.negative_prompt || null],
  ["model", ({ recipe }) => modelOf(recipe.model)?.title ?? recipe.model],
  ["shape", ({ recipe }) => shapeName(recipe.shape)],
  ["seed", ({ seed }) => String(seed)],
  ["steps", ({ recipe }) => String(recipe.steps)],
  ["guidance_scale", ({ recipe }) => String(recipe.guidance_scale)],
  ["guidance_scale_2", ({ recipe }) => textOf(recipe.guidance_scale_2)],
  ["scheduler", ({ recipe }) => schedulerName(recipe.scheduler)],
  ["sigmas", ({ recipe }) => recipe.sigmas?.join(", ") ?? null],
  ["step_cache", ({ recipe }) => recipe.step_cache ?? null],
  ["flow_shift", ({ recipe }) => textOf(recipe.flow_shift)],
  ["fps", ({ recipe }) => textOf(recipe.fps)],
  ["length", ({ kind, frames, recipe }) => (kind === "video" ? seconds(frames / (recipe.fps || 1)) : null)],
  ["strength", ({ recipe }) => textOf(recipe.strength)],
  ["fit", ({ recipe }) => (recipe.fit ? t(`fit.${recipe.fit}`) : null)],
  ["images", ({ recipe }) => (recipe.images.length ? String(recipe.images.length) : null)],
  ["loras", ({ recipe }) => (recipe.loras.length ? recipe.loras.map(loraText).join(", ") : null)],
];

/** What beside the recipe decided over the pixels (studio/worker/provenance.py). */
/** @returns {[string, any][]} */
const madeWith = ({ made_with }) => Object.entries(made_with).map(([name, value]) => [madeName(name), value]);

const madeName = (name) => (has(`made.${name}`) ? t(`made.${name}`) : capitalized(name)); // else a package

const textOf = (value) => (value === null ? null : String(value));

const AXES = { x: t("grid.x"), y: t("grid.y"), z: t("grid.z") };
const nameOf = (id) => AXES[id] ?? t(`setting.${id}`);

/** [{id, name, value}] of what this output has. */
export function settingsOf(output) {
  return SETTINGS.map(([id, read]) => ({ id, name: nameOf(id), value: read(output) })).filter(({ value }) => value !== null);
}

/** [{name, value}] of the weights, devices and versions it was made with. */
export const makingOf = (output) => madeWith(output).map(([name, value]) => ({ name, value }));

/** [{name, values, differs}] of what at least one of the two has. */
export function compareSettings(one, other) {
  const makings = [one, other].map((output) => new Map(madeWith(output)));
  const names = new Set(makings.flatMap((making) => [...making.keys()]));
  return [
    ...SETTINGS.map(([id, read]) => ({ name: nameOf(id), values: [read(one), read(other)] })),
    ...[...names].map((name) => ({ name, values: makings.map((making) => making.get(name) ?? null) })),
  ]
    .filter(({ values }) => values.some((value) => value !== null))
    .map(({ name, values }) => ({ name, values, differs: values[0] !== values[1] }));
}

export const madeAt = ({ created_at }) =>
  new Date(created_at * 1000).toLocaleString(locale, { dateStyle: "medium", timeStyle: "short" });
