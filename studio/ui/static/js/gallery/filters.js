// The gallery's search field and filters: what is asked for, as REST takes it.

import { readFilters as readCounts } from "../core/api.js";
import { el, find, keyed, setText } from "../core/dom.js";
import { shapeName } from "../core/format.js";
import { modelOf, state } from "../core/store.js";
import { t } from "../core/text.js";

const DAY_S = 86_400;
const SELECTS = ["model", "shape", "date", "kind", "tag", "preset"];
const NONE = {
  q: "",
  favourite: false,
  model: "",
  shape: "",
  date: "",
  from: "",
  to: "",
  kind: "",
  tag: "",
  preset: "",
};
const DATES = [
  ["", t("filter.anyTime")],
  ["1", t("filter.today")],
  ["7", t("filter.week")],
  ["30", t("filter.month")],
  ["365", t("filter.year")],
  ["days", t("filter.days")],
];
const KINDS = [
  ["", t("filter.allKinds")],
  ["image", t("filter.pictures")],
  ["video", t("filter.videos")],
];

let wanted = { ...NONE };
let inTrash = false;
let isEveryones = false;
let counts = { kept: 0, trashed: 0, models: [], shapes: {}, tags: {}, presets: [] };
let tell = { change: () => undefined, type: () => undefined };

/** The tags that outputs have. */
export const knownTags = () => Object.keys(counts.tags);

/** `change()` follows every choice, `type()` every letter of the search. */
export function mountFilters(listeners) {
  tell = listeners;
  find("lu-gallery-search").addEventListener("input", (event) => {
    wanted.q = event.currentTarget.value;
    tell.type();
  });
  for (const name of [...SELECTS, "from", "to"])
    find(`lu-gallery-${name}`).addEventListener("change", (event) => set({ [name]: event.target.value }));
  find("lu-gallery-favourite").addEventListener("click", () => set({ favourite: !wanted.favourite }));
  find("lu-gallery-trash").addEventListener("click", () => {
    inTrash = !inTrash;
    set({});
  });
  find("lu-gallery-everyone").addEventListener("click", () => {
    isEveryones = !isEveryones;
    set({});
  });
  find("lu-gallery-clear").addEventListener("click", resetFilters);
  draw();
}

export const isTrash = () => inTrash;

export const isNarrowed = () => Object.keys(NONE).some((name) => wanted[name] !== NONE[name]);

export function resetFilters() {
  set(NONE);
  find("lu-gallery-search").focus();
}

function set(values) {
  wanted = { ...wanted, ...values };
  draw();
  tell.change();
}

/** The query of `GET /outputs`. */
export function readFilters() {
  const { q, shape, kind, tag, preset } = wanted;
  const [what, value] = wanted.model.split(/:(.*)/);
  return {
    q: q.trim(),
    shape,
    kind,
    tag,
    preset,
    favourite: wanted.favourite || null,
    ...(value ? { [what]: value } : {}),
    ...readDates(),
    state: inTrash ? "trashed" : "kept",
    everyone: (isEveryones && !inTrash) || null,
  };
}

/** Days as this browser's clock has them; the day named by "to" is included. */
function readDates() {
  if (wanted.date === "days")
    return {
      after: wanted.from ? startOf(new Date(`${wanted.from}T00:00`)) : null,
      before: wanted.to ? startOf(new Date(`${wanted.to}T00:00`), 1) : null,
    };
  if (wanted.date === "1") return { after: startOf(new Date()) };
  return { after: wanted.date ? Math.floor(Date.now() / 1000 - Number(wanted.date) * DAY_S) : null };
}

/** Midnight, as many days later as that; not 24 hours: one day in spring has 23. */
const startOf = (day, later = 0) => new Date(day.getFullYear(), day.getMonth(), day.getDate() + later).getTime() / 1000;

export function emptyTextOf() {
  if (isNarrowed()) return { title: t("filter.noMatch"), text: t("filter.noMatchText") };
  if (inTrash) return { title: t("trash.isEmpty"), text: t("trash.isEmptyText") };
  return { title: t("gallery.nothing"), text: t("gallery.nothingText") };
}

/** Reads what there is to filter by, and offers it. */
export async function drawFilters() {
  counts = await readCounts(isEveryones && !inTrash);
  draw();
}

function draw() {
  options("model", [["", t("filter.allModels")], ...modelOptions()]);
  options("shape", [["", t("filter.allSizes")], ...counted(counts.shapes, shapeName)]);
  options("date", DATES);
  options("kind", KINDS);
  options("tag", [["", t("filter.allTags")], ...counted(counts.tags, (tag) => tag)]);
  options("preset", [
    ["", t("filter.anyPreset")],
    ...counts.presets.map(({ id, title, count }) => [id, named(title, count)]),
  ]);
  find("lu-gallery-tag").hidden = !wanted.tag && !Object.keys(counts.tags).length;
  find("lu-gallery-preset").hidden = !wanted.preset && !counts.presets.length;
  find("lu-gallery-days").hidden = wanted.date !== "days";
  for (const name of ["from", "to"]) find(`lu-gallery-${name}`).value = wanted[name];
  find("lu-gallery-favourite").setAttribute("aria-pressed", String(wanted.favourite));
  find("lu-gallery-everyone").hidden = !state.me?.sees_everyone || inTrash;
  find("lu-gallery-everyone").setAttribute("aria-pressed", String(isEveryones));
  find("lu-gallery-trash").setAttribute("aria-pressed", String(inTrash));
  const trash = counts.trashed ? named(t("trash.title"), counts.trashed) : t("trash.title");
  setText(find("lu-gallery-trash").querySelector("span"), trash);
  find("lu-gallery-clear").hidden = !isNarrowed();
  if (find("lu-gallery-search").value !== wanted.q) find("lu-gallery-search").value = wanted.q;
}

const named = (name, count) => t("common.counted", { name, count });

const countOf = (models) => models.reduce((sum, { count }) => sum + count, 0);

/** Every model that made something; a family first where it has several. */
function modelOptions() {
  const families = Map.groupBy(counts.models, ({ family }) => family);
  return [...families].flatMap(([family, models]) => [
    ...(family && models.length > 1
      ? [[`family:${family}`, named(t("filter.family", { family: familyTitle(family, models) }), countOf(models))]]
      : []),
    ...models.map(({ id, count }) => [`model:${id}`, named(modelOf(id)?.title ?? id, count)]),
  ]);
}

const familyTitle = (family, models) => modelOf(models[0].id)?.family_title ?? family;

const counted = (values, name) =>
  Object.entries(values).map(([value, count]) => [value, named(name(value), count)]);

/** What is chosen stays on offer, also when nothing has it any more. */
function options(name, items) {
  const select = find(`lu-gallery-${name}`);
  const value = wanted[name];
  const offered = items.some(([offer]) => offer === value) ? items : [...items, [value, value.replace(/^\w+:/, "")]];
  keyed(select, offered, {
    key: ([offer]) => offer,
    create: ([offer, text]) => el("option", { value: offer }, text),
    update: (option, [, text]) => setText(option, text),
  });
  select.value = value;
  select.dataset.set = String(value !== "");
}
