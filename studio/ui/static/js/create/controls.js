// The left column: what to make. Its values are this browser's draft and survive a refresh.
// Not here: sending (actions.js), size cards (sizes.js), input pictures (inputs.js), LoRAs (loras.js), examples (examples.js).

import { arrowsChoose, el, find, keyed, setIcon, setText } from "../core/dom.js";
import { schedulerName, shapeName } from "../core/format.js";
import { recallJson, remember } from "../core/memory.js";
import { clearMessage, clearOnChange, focusProblem, tellProblems } from "../core/problems.js";
import { changed, makesVideo, modelOf, shownOutput, state } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { takeEarly } from "./early.js";
import { drawExamples } from "./examples.js";
import { drawFold, mountFold } from "./fold.js";
import { nearestShape } from "./frame.js";
import { countInputs, drawInputs, firstSize, mountInputs } from "./inputs.js";
import { drawLoras, loadLoras, lorasFor, mountLoras } from "./loras.js";
import { drawOrigin, isOwn } from "./originnote.js";
import { mountPromptHistory } from "./prompthistory.js";
import { drawReading } from "./reading.js";
import { drawSizes, mountSizes } from "./sizes.js";
import { countSteps, drawSigmas, mountSigmas, readSigmas } from "./sigmas.js";
import { drawStepCache } from "./stepcache.js";
import { styledNegative, styledPrompt, styleOf, stylesFor } from "./styles.js";
import { drawSweep, isSweep, mountSweep } from "./sweep.js";

const KEY = "lumesh.draft";
const MAX_SEED_DIGITS = 19; // 2^63 - 1
const EXACT_DIGITS = 15; // longer seeds stay text, which the server takes too
const BATCHES = [1, 2, 4, 8];
// The last four only where the model has them.
const NUMBERS = ["steps", "guidance_scale", "guidance_scale_2", "flow_shift", "fps", "strength"];
const REPLACES = { guidance_scale: { guidance_scale_2: null }, steps: { sigmas: null } };
const LOWEST = { steps: 1, guidance_scale: 0, guidance_scale_2: 0, flow_shift: 1, fps: 1, strength: 0.05 };
const FIELDS = ["prompt", "negative_prompt", "images", "model", "shape", "scheduler", "batch_size", "loras", "fit", "sigmas", "step_cache", ...NUMBERS];

const ONE_JOB = { seeds: 1, draws: null };

let draft = {
  prompt: "",
  negative_prompt: null,
  images: [],
  loras: [],
  model: null,
  hasChosenModel: false, // by the person, so that it does not follow the studio's
  shape: null,
  hasChosenShape: false, // by the person, so that it does not follow pictures
  fit: null,
  steps: null,
  guidance_scale: null,
  guidance_scale_2: null,
  flow_shift: null,
  fps: null,
  strength: null,
  scheduler: null,
  sigmas: null, // the steps' noise levels, instead of their number; null: as the scheduler spaces them
  step_cache: null, // null: off
  batch_size: 1,
  style: null,
  seed: "",
  keepsSeed: false,
  ...ONE_JOB,
  origin: null, // the preset or link that filled the form (originnote.js)
};
// What says nothing about a model: whoever touches anything else has chosen the one that is shown.
const OF_ANY_MODEL = new Set(["prompt", "negative_prompt", "style", "seed", "keepsSeed", "seeds", "draws"]);

let isModelHeld = false; // on this page: what somebody writes for a model is not given to another
let replaced = null; // the draft that a click replaced last, and the prompt that came instead
let drawnModel = null;
/** @type {any[] | null} */
let drawnModels = null;
let submit = (_fixed = {}) => undefined;

/** The recipe as it stands, its style applied; an unlocked seed is drawn by the server. Pictures wait for a model that
 *  takes them, the strength for a picture. */
/** @returns {Recipe} */
export function readRecipe() {
  const exact = draft.seed.length > EXACT_DIGITS ? draft.seed : Number(draft.seed);
  const seed = draft.keepsSeed && draft.seed !== "" ? exact : null;
  const model = modelOf(draft.model);
  const style = styleOf(draft.style);
  const images = model?.limits.images ? draft.images : [];
  return {
    ...pick(draft),
    ...readSigmas(model, draft),
    prompt: styledPrompt(style, draft.prompt),
    negative_prompt: style
      ? styledNegative(style, draft.negative_prompt ?? model?.defaults.negative_prompt)
      : draft.negative_prompt,
    images,
    strength: images.length ? draft.strength : null,
    fit: images.length ? draft.fit : null,
    loras: model ? lorasFor(model, draft.loras) : [],
    seed,
  };
}

/** The recipe with what makes many jobs of it; null when it is one job. */
export function readSweep() {
  const recipe = readRecipe();
  const { seeds, draws } = draft;
  return isSweep(recipe.prompt, seeds) ? { recipe, seeds, draws } : null;
}

/** What is missing, as messages for `showProblems`: the server would say so too, but later. */
export function findMissing() {
  const model = modelOf(draft.model);
  const needed = model?.limits.min_images ?? 0;
  return {
    ...(draft.prompt.trim() ? {} : { prompt: t(makesVideo(model) ? "create.noPromptVideo" : "create.noPrompt") }),
    ...(countInputs() >= needed ? {} : { images: t(needed > 1 ? "create.noPictures" : "create.noPicture") }),
  };
}

/** @returns {Recipe} */
const pick = (values) => Object.fromEntries(FIELDS.map((name) => [name, values[name] ?? null]));

/** "Use these settings": every field from a recipe, with its seed kept; what it leaves open is the model's default. */
export function useRecipe(recipe, seed = recipe.seed) {
  const model = modelOf(recipe.model);
  if (!model) return false;
  const { shape, flow_shift } = recipe;
  replace({
    ...pick(recipe),
    origin: null, // these come from elsewhere than the preset that it names
    hasChosenShape: Boolean(shape),
    flow_shift: flow_shift ?? flowShiftOf(model, shape ?? model.defaults.shape).flow_shift ?? null,
    images: recipe.images ?? [],
    loras: recipe.loras ?? [],
    style: null,
    ...ONE_JOB,
    seed: seed === null ? "" : String(seed),
    keepsSeed: seed !== null,
  });
  if (recipe.negative_prompt) openNegative();
  return true;
}

/** A preset: what it leaves open becomes the model's default, and its seed is kept only if it has one. */
export function usePreset(recipe, { keepsImages }) {
  const model = modelOf(recipe.model);
  const set = Object.fromEntries(Object.entries(pick(recipe)).filter(([, value]) => value !== null));
  const defaults = { ...defaultsOf(model), ...flowShiftOf(model, recipe.shape), loras: [], batch_size: 1, style: null, ...ONE_JOB };
  const origin = null; // until somebody says where it comes from
  const seed = { seed: String(recipe.seed ?? ""), keepsSeed: recipe.seed !== null };
  const hasChosenShape = Boolean(recipe.shape);
  replace({ ...defaults, ...set, origin, hasChosenShape, images: keepsImages ? draft.images : [], ...seed });
  if (recipe.negative_prompt) openNegative();
}

/** The words alone, with those to avoid. */
export function usePrompt({ prompt, negative_prompt }) {
  replace({ prompt, negative_prompt, style: null });
  if (negative_prompt) openNegative();
}

export function useSeed(seed) {
  replace({ seed: String(seed), keepsSeed: true });
}

/** Makes an example of the chosen model, or of another, as its picture was made. The form keeps no seed, so Generate then
 *  draws another one like it; while a queued job is edited, only its form is filled, for Save to take. */
export function useExample({ prompt, seed }, id = draft.model) {
  const model = modelOf(id);
  const empty = { images: [], loras: [], batch_size: 1, style: null, origin: null, hasChosenShape: false, ...ONE_JOB };
  replace({ ...defaultsOf(model), ...empty, model: id, prompt, seed: "", keepsSeed: false });
  tellReplaced(t("toast.exampleFilled"));
  if (!state.editedId) submit(seed === null ? {} : { seed });
}

/** Notes which preset or link the form is filled with: `{id, title, text, tone, isShared}`; null for none. */
export function setOrigin(origin) {
  const { model, prompt } = readRecipe();
  keep({ origin: origin && { ...origin, model, prompt } });
}

/** The preset that the settings are still those of, for the job to be filed under. */
export function usedPreset() {
  const { origin, model } = draft;
  return origin?.id && isOwn(origin, { model, prompt: readRecipe().prompt }) ? origin.id : null;
}

export const chosenModel = () => draft.model;

/** The form as it stands, to put it back later. */
export const keptDraft = () => structuredClone(draft);

export function restoreDraft(kept) {
  replaced = null;
  change(kept);
}

/** What the form was filled with is not taken back from within the prompt. */
export function settleDraft() {
  replaced = null;
}

function replace(values) {
  const before = keptDraft();
  change(values);
  replaced = { before, prompt: draft.prompt };
}

/** Whether somebody had written or set something in what was replaced. */
function hasReplacedWork() {
  const { before } = replaced;
  const { prompt, images, loras, style, keepsSeed, batch_size, seeds } = before;
  const isMore = batch_size !== 1 || seeds !== 1;
  const hasAdded = images.length > 0 || loras.length > 0 || style !== null || keepsSeed || isMore;
  return prompt.trim() !== "" || hasAdded || hasOwnSettings(before);
}

const hasOwnSettings = (one) =>
  Object.entries(defaultsOf(modelOf(one.model))).some(([name, value]) => (one[name] || null) !== (value || null));

/** Says that a click replaced the draft, if there was anything in it. */
export function tellReplaced(text) {
  if (hasReplacedWork()) offerUndo(text);
}

/** Says what a click did to the draft, with a button that brings all of it back; Ctrl+Z in the prompt does the same. */
export function offerUndo(text, ...offers) {
  const { before } = replaced;
  const undo = hasReplacedWork() ? [{ label: t("trash.undo"), act: () => restoreDraft(before) }] : [];
  toast(text, ...undo, ...offers);
}

/** The browser's own undo ends where a script wrote into the field. */
function undoInPrompt(event) {
  const isUndo = (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "z";
  if (!isUndo || !replaced || find("lu-prompt").value !== replaced.prompt) return;
  event.preventDefault();
  restoreDraft(replaced.before);
}

/** To write on at its end. */
export function focusPrompt() {
  const prompt = find("lu-prompt");
  prompt.focus();
  prompt.setSelectionRange(prompt.value.length, prompt.value.length);
}

/** Messages of the server at their fields; anything without a field stands above the button. */
export function showProblems(fields) {
  const form = find("lu-controls");
  const rest = tellProblems(form, fields).map(([field, message]) => `${field}: ${message}`);
  if (rest.length) tellProblems(form, { ...fields, recipe: [fields.recipe, ...rest].filter(Boolean).join("; ") });
  if (fields.negative_prompt) openNegative();
  for (const place of form.querySelectorAll("details [data-message]:not(:empty)")) place.closest("details").open = true;
  focusProblem(form);
}

export function mountControls(onSubmit) {
  submit = onSubmit;
  draft = { ...draft, ...readDraft() };
  clearOnChange(find("lu-controls"), "recipe");
  find("lu-controls").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  mountPrompt();
  mountInputs({
    change: (images) => {
      clearProblem("images");
      keep({ images });
    },
    first: followPicture,
    fit: (fit) => change({ fit }),
  });
  mountSizes((shape) => change({ shape, hasChosenShape: true, ...flowShiftOf(modelOf(draft.model), shape) }));
  find("lu-model").addEventListener("change", (event) => chooseModel(event.currentTarget.value));
  mountLoras((update) => change({ loras: update(draft.loras) }));
  find("lu-scheduler").addEventListener("change", (event) => change({ scheduler: event.currentTarget.value }));
  mountSigmas(change);
  find("lu-step_cache").addEventListener("change", (event) => change({ step_cache: event.currentTarget.value || null }));
  for (const name of NUMBERS) mountNumber(name);
  mountBatch();
  mountSeed();
  mountFold();
  mountSweep(change);
}

/** As the picker does. */
export function chooseModel(id) {
  replaceModel(id);
  if (draft.images.length && firstSize()) followPicture(firstSize());
  loadLoras().catch(() => undefined); // those that were known are still shown
}

/** What was set for one model means little to another; what somebody changed comes back with Undo. */
function replaceModel(id) {
  replace({ ...defaultsOf(modelOf(id)), model: id, hasChosenShape: false });
  if (hasOwnSettings(replaced.before)) offerUndo(t("toast.modelDefaults", { model: modelOf(id).title }));
}

/** The nearest size to the first picture, unless somebody chose one. */
function followPicture(size) {
  const model = modelOf(draft.model);
  const current = model?.shapes.find((one) => one.shape === draft.shape);
  if (draft.hasChosenShape || !current || !model.limits.images) return;
  const { shape } = nearestShape(model.shapes, size, current);
  if (shape === draft.shape) return;
  change({ shape, ...flowShiftOf(model, shape) });
  toast(t("fit.followed", { size: shapeName(shape, draft.fps) }));
}

/** Models come and change with every event that touches the engine; the fields follow. */
export function drawControls() {
  if (!state.models.length) return;
  const model = modelToShow();
  if (draft.model !== model.id) Object.assign(draft, { model: model.id }, defaultsOf(model));
  repair(model);
  drawPicker();
  if (drawnModel !== model.id) drawModel(model);
  drawStyles(model);
  drawInputs(model, draft.images, draft);
  drawLoras(model, draft.loras);
  drawSizes(model, draft.shape, draft);
  drawValues(model);
  drawSweep(readSweep(), draft);
  const { prompt, negative_prompt, loras } = readRecipe();
  const negative = negative_prompt ?? model.defaults.negative_prompt;
  drawReading({ model, prompt, negative_prompt: negative, loras: loras ?? [] }, useExample);
  drawOrigin(draft.origin, { model: draft.model, prompt });
}

/** The person's own choice while it is there; for whoever has made none, the one that the studio opens with. */
function modelToShow() {
  const own = modelOf(draft.model);
  if (own && (draft.hasChosenModel || isModelHeld)) return own;
  return modelOf(state.opening) ?? own ?? state.models[0];
}

const defaultsOf = (model) => {
  const { shape, scheduler } = model.defaults;
  return { ...Object.fromEntries(NUMBERS.map((name) => [name, model.defaults[name]])), shape, scheduler, negative_prompt: null, sigmas: null, step_cache: null };
};

/** Larger videos are denoised at higher noise levels: each size has its own default. */
const flowShiftOf = (model, shape) => {
  const found = model.shapes.find((one) => one.shape === shape);
  return found && found.flow_shift !== null ? { flow_shift: found.flow_shift } : {};
};

/** A draft may be older than the catalogue: what the model no longer offers becomes its default. */
function repair(model) {
  if (!model.shapes.some((shape) => shape.shape === draft.shape)) draft.shape = model.defaults.shape;
  if (!model.schedulers.includes(draft.scheduler)) draft.scheduler = model.defaults.scheduler;
  if (!model.step_cache || draft.step_cache === "off") draft.step_cache = null;
  Object.assign(draft, countSteps(model, draft));
  for (const name of NUMBERS) draft[name] = model.defaults[name] === null ? null : (draft[name] ?? model.defaults[name]);
  const style = styleOf(draft.style);
  if (style && !stylesFor(model).includes(style)) draft.style = null;
  draft.batch_size = Math.min(draft.batch_size || 1, model.limits.batch_size);
}

/** Models come and go while the page is open. */
function drawPicker() {
  if (drawnModels === state.models) return;
  drawnModels = state.models;
  keyed(find("lu-model"), state.models, {
    key: (one) => one.id,
    create: (one) => el("option", { value: one.id }),
    update: (option, one) => setText(option, one.is_here ? one.title : t("model.away", { title: one.title })),
  });
}

function drawModel(model) {
  drawnModel = model.id;
  keyed(find("lu-scheduler"), model.schedulers, {
    key: (name) => name,
    create: (name) => el("option", { value: name }, schedulerName(name)),
  });
  setText(find("lu-model-note"), together(model.description, model.weights === "full" ? "" : t(`model.${model.weights}`)));
  find("lu-knows").hidden = !model.knows;
  setText(find("lu-knows").querySelector("p"), model.knows);
  for (const name of NUMBERS) {
    const slider = find(`lu-${name}`);
    slider.closest("[data-field]").hidden = model.defaults[name] === null;
    for (const input of [slider, find(`lu-${name}-value`)])
      Object.assign(input, { min: LOWEST[name], max: model.limits[name] });
    if (name === "steps") slider.max = model.limits.useful_steps; // more can still be typed
  }
  const isVideo = makesVideo(model);
  find("lu-prompt").placeholder = t(isVideo ? "create.promptHintVideo" : "create.promptHint");
  setText(find("lu-negative-label"), t(isVideo ? "create.negativeLabelVideo" : "create.negativeLabel"));
  setText(find("lu-empty").querySelector("h2"), t(isVideo ? "canvas.describeVideo" : "canvas.describe"));
  setText(find("lu-batch-label"), t(isVideo ? "create.videos" : "create.images"));
  find("lu-flow").hidden = model.defaults.flow_shift === null && model.defaults.fps === null;
  drawExamples(model.examples, useExample);
}

function drawStyles(model) {
  const items = [{ id: "", title: t("create.noStyle") }, ...stylesFor(model)];
  keyed(find("lu-style"), items, {
    key: (style) => style.id,
    create: (style) => el("option", { value: style.id }, style.title),
  });
  find("lu-style").hidden = items.length === 1;
}

function drawStyle() {
  const style = styleOf(draft.style);
  find("lu-style").value = style?.id ?? "";
  const note = find("lu-style-note");
  note.hidden = !style;
  if (style) setText(note, t("create.becomes", { prompt: styledPrompt(style, draft.prompt.trim() || "…") }));
}

function drawValues(model) {
  put(find("lu-prompt"), draft.prompt);
  put(find("lu-negative"), draft.negative_prompt ?? model.defaults.negative_prompt);
  drawStyle();
  find("lu-model").value = draft.model;
  find("lu-scheduler").value = draft.scheduler;
  drawSigmas(model, draft);
  drawStepCache(model, draft);
  for (const name of NUMBERS) {
    if (draft[name] === null) continue;
    const slider = find(`lu-${name}`);
    slider.value = draft[name];
    slider.style.setProperty("--at", (100 * (slider.value - slider.min)) / (slider.max - slider.min));
    put(find(`lu-${name}-value`), String(draft[name]));
  }
  find("lu-strength-box").hidden = draft.strength === null || !draft.images.length;
  drawFold(draft);
  drawBatch(model);
  put(find("lu-seed"), draft.seed);
  const lock = find("lu-seed-lock");
  lock.setAttribute("aria-pressed", String(draft.keepsSeed));
  lock.title = t(draft.keepsSeed ? "create.keptHint" : "create.keep");
  lock.setAttribute("aria-label", t(draft.keepsSeed ? "create.kept" : "create.keep"));
  setIcon(lock, draft.keepsSeed ? "lock" : "unlock");
}

/** "4." on its way to "4.5" is 4 already: a number that is being typed is left alone. */
function put(input, value) {
  const isTyping = input.type === "number" && input === document.activeElement;
  if (!isTyping && input.value !== value) input.value = value;
}

function change(values) {
  for (const name of Object.keys(values)) clearProblem(name);
  keep(values);
}

function keep(values) {
  isModelHeld ||= state.opening !== null;
  if (Object.keys(values).some((name) => !OF_ANY_MODEL.has(name))) draft.hasChosenModel = true;
  Object.assign(draft, values);
  // A refresh ends editing, and brings back the form as it was before.
  if (!state.editedId) remember(KEY, JSON.stringify({ ...draft, origin: null }));
  drawControls();
  if ("model" in values || "images" in values) changed(); // whether a result can become an input
}

export function clearProblem(field) {
  for (const name of [field, "recipe"]) clearMessage(find("lu-controls"), name);
}

function readDraft() {
  const kept = recallJson(KEY, {});
  return { hasChosenModel: Boolean(kept.model), ...kept }; // older drafts do not tell
}

function mountPrompt() {
  const prompt = find("lu-prompt");
  const early = takeEarly();
  if (prompt.value || early) keep({ prompt: ((prompt.value || draft.prompt) + early).trimStart() });
  put(prompt, draft.prompt);
  prompt.addEventListener("input", () => change({ prompt: prompt.value }));
  prompt.addEventListener("keydown", undoInPrompt);
  mountPromptHistory();
  find("lu-negative").addEventListener("input", (event) => change({ negative_prompt: event.currentTarget.value }));
  find("lu-negative-toggle").addEventListener("click", () => {
    if (find("lu-negative-box").hidden) {
      openNegative();
      find("lu-negative").focus();
    } else {
      find("lu-negative-box").hidden = true;
      find("lu-negative-toggle").setAttribute("aria-expanded", "false");
    }
  });
  find("lu-style").addEventListener("change", (event) => change({ style: event.currentTarget.value || null }));
  if (draft.negative_prompt) openNegative();
}

function openNegative() {
  find("lu-negative-box").hidden = false;
  find("lu-negative-toggle").setAttribute("aria-expanded", "true");
}

function mountNumber(name) {
  const slider = find(`lu-${name}`);
  const number = find(`lu-${name}-value`);
  const set = (value) => change({ [name]: value, ...(REPLACES[name] ?? {}) });
  slider.addEventListener("input", () => set(Number(slider.value)));
  // While typing, "1" may become "12": the value counts as it stands, the server says when it is out of range.
  number.addEventListener("input", () => number.value !== "" && set(Number(number.value)));
  number.addEventListener("blur", () => drawControls());
}

function mountBatch() {
  const group = find("lu-batch");
  arrowsChoose(group);
  group.addEventListener("click", (event) => {
    const button = event.target.closest("[role=radio]");
    if (button) change({ batch_size: Number(button.dataset.key) });
  });
}

function drawBatch(model) {
  const offered = new Set([...BATCHES, draft.batch_size].filter((count) => count <= model.limits.batch_size));
  keyed(
    find("lu-batch"),
    [...offered].sort((a, b) => a - b),
    {
      key: (count) => count,
      create: (count) => el("button", { type: "button", role: "radio" }, String(count)),
      update: (button, count) => {
        button.setAttribute("aria-checked", String(count === draft.batch_size));
        button.tabIndex = count === draft.batch_size ? 0 : -1;
      },
    },
  );
}

function mountSeed() {
  const input = find("lu-seed");
  input.addEventListener("input", () => {
    const isRandom = input.value.trim().startsWith("-"); // -1, as in other programs
    const digits = isRandom ? "-1".slice(0, input.value.trim().length) : input.value.replace(/\D/g, "").slice(0, MAX_SEED_DIGITS);
    input.value = digits;
    change({ seed: digits, keepsSeed: digits !== "" && !isRandom });
  });
  find("lu-seed-dice").addEventListener("click", () =>
    useSeed(crypto.getRandomValues(new Uint32Array(1))[0]),
  );
  find("lu-seed-lock").addEventListener("click", () => {
    if (draft.keepsSeed) change({ seed: "", keepsSeed: false });
    else useSeed(shownOutput()?.seed ?? crypto.getRandomValues(new Uint32Array(1))[0]);
  });
}
