// A grid's dialog: the draft's recipe along two or three axes, counted and priced by the server before it is queued.
// Not here: what typed values mean (studio/jobs/many/axes.py), the wall of the gallery (grid.js).

import { countGrid, submitGrid } from "../core/api.js";
import { allValues, axesOf, axisId } from "../core/axes.js";
import { el, find, keyed, setText } from "../core/dom.js";
import { shapeName, wholeSeconds } from "../core/format.js";
import { recallJson, remember } from "../core/memory.js";
import { tellProblems } from "../core/problems.js";
import { follow, modelOf, state } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { showView } from "../core/views.js";
import { chosenModel, offerUndo, readRecipe, useRecipe } from "./controls.js";
import { mayDownload } from "./download.js";

const KEY = "lumesh.grid";
const AXES = ["x", "y", "z"];
const NOTHING = "";
const ASK_AFTER_MS = 250; // of quiet: not at every letter
const HINTS = {
  prompt: t("grid.promptHint"),
  seed: "1-4",
  steps: "4, 8, 12",
  guidance_scale: "2-8 (+2)",
  guidance_scale_2: "2-8 (+2)",
  flow_shift: "3, 5, 8",
  strength: "0.3, 0.6, 0.9",
  lora_scale: "0-1 [5]",
};

let draft = {
  x: { field: "steps", values: "" },
  y: { field: "guidance_scale", values: "" },
  z: { field: NOTHING, values: "" },
};
let asked = "";
let timer = 0;

export function mountGridDialog() {
  draft = { ...draft, ...recallJson(KEY, {}) };
  const dialog = find("lu-xyz");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
  find("lu-xyz-open").addEventListener("click", openGrid);
  find("lu-xyz-form").addEventListener("submit", (event) => {
    event.preventDefault();
    queue();
  });
  for (const name of AXES) {
    fieldOf(name).addEventListener("change", (event) => {
      const { field, lora } = itemsOf(name).find((item) => axisId(item) === event.target.value);
      change(name, { field, lora, values: "" });
    });
    valuesOf(name).addEventListener("input", (event) => change(name, { values: event.target.value }));
    find(`lu-xyz-${name}-all`).addEventListener("click", () => {
      change(name, { values: allValues(draft[name].field, modelOf(chosenModel()), state.models) });
      valuesOf(name).focus();
    });
  }
}

const fieldOf = (name) => find(`lu-xyz-${name}-field`);
const valuesOf = (name) => find(`lu-xyz-${name}-values`);

/** Of the settings as they stand. */
export function openGrid() {
  if (!state.models.length || find("lu-xyz").open) return;
  asked = "";
  draw();
  find("lu-xyz").showModal();
  valuesOf("x").focus();
}

/** A sheet once more: its recipe becomes the page's, its axes the dialog's. */
export function useGrid(recipe, axes) {
  if (!useRecipe(recipe)) return toast(t("toast.noModel", { model: recipe.model }));
  for (const name of AXES) draft[name] = withLora(axes[name], recipe) ?? { field: NOTHING, values: "" };
  remember(KEY, JSON.stringify(draft));
  showView("create");
  offerUndo(t("toast.settings"));
  return openGrid();
}

/** A sheet may leave out which LoRA it scales, when its recipe has only one. */
const withLora = (axis, recipe) =>
  axis?.field === "lora_scale" && !axis.lora ? { ...axis, lora: recipe.loras?.[0]?.ref } : axis;

/** What the axis may be; only the first one must be something. */
function itemsOf(name) {
  const offered = axesOf(modelOf(chosenModel()), state.models, readRecipe());
  return name === "x" ? offered : [{ field: NOTHING, name: t("grid.nothing") }, ...offered];
}

function change(name, values) {
  draft[name] = { ...draft[name], ...values };
  remember(KEY, JSON.stringify(draft));
  draw();
}

function draw() {
  const model = modelOf(chosenModel());
  for (const name of AXES) {
    const items = itemsOf(name);
    if (!items.some((item) => axisId(item) === axisId(draft[name]))) draft[name] = { field: items[0].field, values: "" };
    const { field, values } = draft[name];
    keyed(fieldOf(name), items, {
      key: axisId,
      create: (item) => el("option", { value: axisId(item) }, item.name),
    });
    fieldOf(name).value = axisId(draft[name]);
    const all = allValues(field, model, state.models);
    const input = valuesOf(name);
    input.hidden = field === NOTHING;
    input.placeholder = HINTS[field] ?? all ?? "";
    if (input.value !== values) input.value = values;
    find(`lu-xyz-${name}-all`).hidden = all === null;
  }
  ask();
}

/** The grid as the server takes it; null while an axis that was chosen has no values yet. */
function readGrid() {
  const chosen = AXES.filter((name) => draft[name].field !== NOTHING);
  const isWhole = chosen.every((name) => draft[name].values.trim());
  const axes = Object.fromEntries(chosen.map((name) => [name, draft[name]]));
  return isWhole ? { ...axes, recipe: readRecipe() } : null;
}

function ask() {
  const grid = readGrid();
  const question = grid ? JSON.stringify(grid) : "";
  if (question && question === asked) return;
  asked = question;
  clearTimeout(timer);
  showProblems({});
  show(null);
  if (!question) return;
  timer = setTimeout(async () => {
    const found = await countGrid(grid).catch((error) => ({ error }));
    if (asked !== question) return;
    if (found.error) showProblems(problemsOf(found.error));
    else show(found);
  }, ASK_AFTER_MS);
}

/** What was counted; null while nobody knows. */
function show(found) {
  const isTooMany = found !== null && found.count > found.limit;
  find("lu-xyz-told").dataset.wrong = String(isTooMany);
  setText(find("lu-xyz-count"), found ? lineOf(found) : readGrid() ? "…" : t("grid.write"));
  keyed(find("lu-xyz-costs"), found && !isTooMany ? costsOf(found) : [], {
    key: ({ text }) => text,
    create: ({ text, kind }) => el("li", { data: { state: kind } }, text),
  });
  const isReady = found !== null && !isTooMany;
  find("lu-xyz-queue").setAttribute("aria-disabled", String(!isReady));
  setText(find("lu-xyz-queue").querySelector("span"), isReady ? t("sweep.queue", { count: found.count }) : t("grid.queue"));
}

function lineOf({ axes, count, limit, seconds }) {
  const counts = Object.values(axes).map((labels) => labels.length);
  const jobs = t("sweep.jobs", { count });
  const total = counts.length > 1 ? `${counts.join(" × ")} = ${jobs}` : jobs;
  if (count > limit) return t("sweep.tooMany", { total, limit });
  return `${total} · ${tookOf(seconds)}`;
}

const tookOf = (seconds) => (seconds === null ? t("grid.unmeasured") : t("sweep.about", { time: wholeSeconds(seconds) }));

/** What comes before the first picture of a model or a size. */
function costsOf({ loads, warmings }) {
  const title = (id) => modelOf(id)?.title ?? id;
  const size = (programs) => programs.split(" ").map((part, index) => (index ? part : shapeName(part))).join(" ");
  const isMany = new Set([...loads, ...warmings].map(({ model }) => model)).size > 1;
  return [
    ...loads.map(({ model, seconds }) => ({
      kind: "load",
      text: `${t("grid.loaded", { model: title(model) })} · ${tookOf(seconds)}`,
    })),
    ...warmings.map(({ model, programs, state: kind, seconds }) => ({
      kind,
      text: [
        t(kind === "cold" ? "grid.compiled" : "grid.fromCache", {
          size: isMany ? t("grid.sizeOf", { size: size(programs), model: title(model) }) : size(programs),
        }),
        tookOf(seconds),
      ].join(" · "),
    })),
  ];
}

const problemsOf = ({ fields, detail, advice }) =>
  Object.keys(fields).length ? fields : { grid: together(detail, advice) };

/** At their axes; what is about the recipe stands below, with its field. */
function showProblems(fields) {
  const own = Object.fromEntries(Object.entries(fields).map(([field, message]) => [field.split(".")[0], message]));
  const rest = Object.entries(fields).filter(([field]) => !AXES.includes(field.split(".")[0]));
  const below = rest.map(([field, message]) => (field === "grid" ? message : `${field.replace("recipe.", "")}: ${message}`));
  tellProblems(find("lu-xyz"), { ...own, grid: below.join("; ") });
  if (Object.keys(fields).length) setText(find("lu-xyz-count"), "");
}

async function queue() {
  const grid = readGrid();
  if (!grid) return valuesOf(AXES.find((name) => draft[name].field && !draft[name].values.trim())).focus();
  const button = find("lu-xyz-queue");
  button.disabled = true;
  try {
    if (!(await mayDownload(grid.recipe.model))) return undefined;
    const { ids } = await submitGrid(grid);
    find("lu-xyz").close();
    follow();
    toast(t("grid.queued", { count: ids.length }));
  } catch (error) {
    if (!error.fields) throw error;
    showProblems(problemsOf(error));
  } finally {
    button.disabled = false;
  }
  return undefined;
}
