// The presets view: cards to search and filter, each made with one click; files in by pick (dropped ones: files.js).

import { at, deletePreset, fetchLoras, importPreset, readModelFiles, readPresets } from "../core/api.js";
import { arrivalText } from "../core/arrivaltext.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { isOperator, modelOf, state } from "../core/store.js";
import { language, named, t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { said } from "../core/translate_server.js";
import { isShown, onView, showView } from "../core/views.js";
import { generate } from "../create/actions.js";
import { loadLoras } from "../create/loras.js";
import { fillFrom, forgetShared, originText, titleOf } from "../create/origin.js";
import { mountHub, openHub } from "./hub.js";
import { openShare } from "./share.js";

const SEARCH_MS = 120; // while somebody types
const LOOK_MS = 1500; // while LoRAs are downloaded
const MAX_TAGS = 16;

let wanted = { q: "", tag: "", model: "" };
let searchTimer = 0;
let asked = 0;

export function mountPresets() {
  find("lu-presets-search").addEventListener("input", (event) => {
    wanted = { ...wanted, q: event.currentTarget.value };
    clearTimeout(searchTimer);
    searchTimer = setTimeout(load, SEARCH_MS);
  });
  find("lu-presets-model").addEventListener("change", (event) => narrow({ model: event.currentTarget.value }));
  find("lu-presets-tags").addEventListener("click", (event) => {
    const tag = event.target.closest("button")?.dataset.key;
    if (tag) narrow({ tag: tag === wanted.tag ? "" : tag });
  });
  const file = find("lu-presets-file");
  find("lu-presets-import").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    importFiles([...file.files]);
    file.value = "";
  });
  mountHub(load);
  find("lu-presets-hub").addEventListener("click", openHub);
  onView(openPresets);
}

export function openPresets() {
  if (isShown("presets")) load();
}

function narrow(values) {
  wanted = { ...wanted, ...values };
  load();
}

async function load() {
  asked += 1;
  const mine = asked; // a later answer may come first
  try {
    const found = await readPresets(language === "en" ? wanted : { ...wanted, q: "" });
    if (mine === asked) draw({ ...found, presets: found.presets.filter(isWanted) });
  } catch (error) {
    say(error);
  }
}

/** The server searches in English; in another language both are searched here, in the same way. */
function isWanted(preset) {
  if (language === "en") return true;
  const { title, description, author, recipe, model, tags } = preset;
  const texts = [title, titleOf(preset), description, named(description), author, recipe.prompt, model.id];
  texts.push(model.title, named(model.title), ...tags, ...tags.map(named));
  const text = texts.join(" ").toLowerCase();
  return wanted.q.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function draw({ presets, tags, models }) {
  setText(find("lu-presets-count"), t("preset.count", { count: presets.length }));
  drawModels(models);
  drawTags(tags);
  const own = find("lu-presets-export");
  own.href = at("api/v1/presets.zip");
  own.hidden = !presets.some((preset) => preset.origin.kind !== "shipped");
  keyed(find("lu-presets-grid"), presets, { key: (preset) => JSON.stringify(preset), create });
}

function drawModels(models) {
  const select = find("lu-presets-model");
  const named = ([id, count]) => [id, t("common.counted", { name: nameOf(id), count })];
  const items = [["", t("filter.allModels")], ...Object.entries(models).map(named)];
  keyed(select, items, {
    key: ([id]) => id,
    create: ([id, name]) => el("option", { value: id }, name),
    update: (option, [, name]) => setText(option, name),
  });
  select.value = wanted.model;
}

const nameOf = (id) => modelOf(id)?.title ?? id;

function drawTags(tags) {
  const shown = Object.keys(tags).slice(0, MAX_TAGS);
  if (wanted.tag && !shown.includes(wanted.tag)) shown.push(wanted.tag);
  keyed(find("lu-presets-tags"), shown, {
    key: (tag) => tag,
    create: (tag) => el("button.lu-chip", { type: "button" }, named(tag)),
    update: (chip, tag) => chip.setAttribute("aria-pressed", String(tag === wanted.tag)),
  });
}

function create(preset) {
  const { missing, origin } = preset;
  const title = titleOf(preset);
  const name = named(preset.model.title) || preset.model.id;
  const isOwn = origin.kind !== "shipped";
  const origins = [isOwn && originText(preset), preset.author && t("origin.by", { author: preset.author })];
  const action = (iconName, label, onclick) =>
    el(
      "button.lu-icon-button",
      { type: "button", onclick, title: label, "aria-label": t("common.named", { name: label, value: title }) },
      icon(iconName),
    );
  return el(
    "li.lu-preset",
    { data: { id: preset.id } },
    art(preset, name),
    el(
      "div.lu-preset-body",
      {},
      el("h3", { title }, title),
      el("p.lu-preset-model", { title: preset.recipe.prompt }, name),
      el("p.lu-preset-text", {}, named(preset.description) || preset.recipe.prompt),
      el("p.lu-preset-origin", {}, origins.filter(Boolean).join(", ")),
      missing ? howToAdd(missing) : null,
      preset.lacks.length ? whatItLacks(preset, title) : null,
    ),
    el(
      "div.lu-preset-actions",
      {},
      missing
        ? null
        : el(
            "button.lu-button.lu-accent",
            {
              type: "button",
              onclick: () => make(preset),
              "aria-label": t("common.named", { name: t("preset.make"), value: title }),
            },
            icon("spark"),
            t(preset.needs_picture ? "preset.addPicture" : "preset.make"),
          ),
      missing ? null : action("sliders", t("preset.edit"), () => edit(preset)),
      action("share", t("share.share"), () => openShare(preset)),
      isOwn ? action("trash", t("preset.delete"), () => remove(preset)) : null,
    ),
  );
}

/** Its own picture, or a plain card with the model's name: never a picture that the model did not make. */
function art(preset, name) {
  if (!preset.thumb_url)
    return el("div.lu-preset-art.lu-preset-plain", { "aria-hidden": "true" }, el("span", {}, name));
  const image = el("img", { src: at(preset.thumb_url), alt: preset.recipe.prompt, loading: "lazy", decoding: "async" });
  return el("div.lu-preset-art", {}, image);
}

function howToAdd(missing) {
  return el(
    "details.lu-preset-missing",
    {},
    el("summary", {}, t("preset.needs", { model: named(missing.title) || missing.model })),
    el("p", {}, said(missing, "advice")),
  );
}

/** The LoRAs that are not here, each with its licence, and a button for those who look after the machine. */
function whatItLacks({ id, lacks }, title) {
  const rows = lacks.map((lora) => {
    if (!lora.url) return el("p", {}, said(lora, "advice"));
    const licence = lora.licence ? t("preset.lacksLicence", { licence: lora.licence }) : t("preset.lacksUnknown");
    return el("p", {}, el("a", { href: lora.url, target: "_blank", rel: "noopener" }, lora.ref), " ", licence);
  });
  const button = (label) => el("button.lu-button", { type: "button", data: { fetch: id }, onclick: () => fetchAll(id),
    "aria-label": t("common.named", { name: label, value: title }) }, icon("download"), el("span", {}, label));
  const isOffered = isOperator() && lacks.every(({ url }) => url);
  return el(
    "details.lu-preset-missing",
    {},
    el("summary", {}, t("preset.lacks", { count: lacks.length })),
    ...rows,
    isOffered ? button(t("preset.fetch")) : null,
  );
}

async function fetchAll(id) {
  try {
    const { arrivals } = await fetchLoras(id);
    toast(t("preset.fetching"));
    watchLoras(new Set(arrivals.map((arrival) => arrival.id)));
  } catch (error) {
    say(error);
  }
}

/** Draws the cards anew once everything has come, and says what failed. */
async function watchLoras(ids) {
  await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  try {
    const { arrivals } = await readModelFiles();
    const mine = arrivals.filter(({ id }) => ids.has(id));
    if (mine.some(({ state }) => state === "waiting" || state === "running")) return watchLoras(ids);
    const failed = mine.filter(({ state }) => state === "failed");
    if (failed.length) say(new Error(together(...failed.map(arrivalText))));
    for (const { made } of mine.filter(({ state }) => state === "done")) toast(t("preset.fetched", { name: made }));
    await Promise.all([load(), loadLoras()]);
  } catch (error) {
    say(error);
  }
}

function make(preset) {
  forgetShared();
  fillFrom(preset, { keepsImages: preset.needs_picture });
  if (!state.editedId) generate(); // else Save takes it
}

function edit(preset) {
  forgetShared();
  fillFrom(preset);
}

async function remove(preset) {
  if (!confirm(t("preset.confirmDelete", { title: preset.title }))) return;
  try {
    await deletePreset(preset.id);
    toast(t("preset.deleted"));
  } catch (error) {
    say(error);
  }
  load();
}

// Files

/** By their names: what is in them the server finds out. */
export const isPreset = (file) => /\.(json|zip)$/i.test(file.name);

export const importFiles = (files) => bringIn(files.map((file) => ({ file, query: [] })));

/** `query` says what to do with what is here already. */
async function bringIn(wanted) {
  say(null);
  askAbout([]);
  showView("presets");
  const kept = [];
  const known = [];
  for (const { file, query } of wanted) {
    try {
      const { presets, known: here, refused } = await importPreset(file, [["name", file.name], ...query]);
      kept.push(...presets);
      if (here.length && !query.length) known.push({ file, presets: here });
      if (refused.length) say(new Error(together(...refused.map(whyRefused))));
    } catch (error) {
      say(error, file.name);
    }
  }
  if (kept.length) toast(t("preset.imported", { count: kept.length, title: kept[0].title }));
  askAbout(known);
  load();
}

/** What is here already is left alone until somebody says otherwise; what comes with Lumesh cannot be replaced. */
function askAbout(known) {
  const box = find("lu-presets-known");
  const presets = known.flatMap((one) => one.presets);
  box.hidden = !presets.length;
  if (!presets.length) return;
  const again = (how) =>
    bringIn(known.map((one) => ({ file: one.file, query: [["known", how], ...one.presets.map(({ title }) => ["title", title])] })));
  const button = (label, act) => el("button.lu-button", { type: "button", onclick: act }, label);
  box.replaceChildren(
    el("p", {}, t("preset.known", { count: presets.length, title: titleOf(presets[0]) })),
    ...(presets.some(({ origin }) => origin.kind !== "shipped")
      ? [button(t("preset.replace"), () => again("replace"))]
      : []),
    button(t("preset.keepBoth"), () => again("copy")),
    button(t("preset.leave"), () => askAbout([])),
  );
}

const whyRefused = (one) => t("common.file", { name: one.name, text: said(one, "detail") });

function say(error, name = "") {
  const text = error ? together(error.message, error.advice) : "";
  setText(find("lu-presets-message"), name && text ? t("common.file", { name, text }) : text);
}

export const focusSearch = () => find("lu-presets-search").focus();

