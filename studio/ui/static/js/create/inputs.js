// Pictures to start from: sent at once, kept in the order in which they were added. The draft holds their ids
// (controls.js); a file that is still on its way is only here. Not here: what is dropped or pasted (files.js).

import { at, inputThumbPath, uploadPicture } from "../core/api.js";
import { arrowsChoose, el, find, icon, keyed, setStyles, setText } from "../core/dom.js";
import { percent, shapeName } from "../core/format.js";
import { makeLeftOut } from "../core/leftout.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { saidList } from "../core/translate_server.js";
import { boxesOf, frameOf, outsideOf } from "./frame.js";

export const MAX_BYTES = 20e6; // the server's limit: it would cut the connection of a longer file, which says nothing

let items = []; // {key, id (null on its way), thumb, percent, sent (a promise of whether it came), size, isNew,
// stop (ends the sending), note (what of its file was changed)}
let model = null;
let shape = null; // the chosen one
let fit = "crop";
let count = 0;
/**
 * @typedef {{ width: number, height: number }} Size
 * @type {{
 *   change: (ids: string[]) => unknown, first: (size: Size) => unknown, fit: (fit: string) => unknown
 * }}
 */
let tell = { change: () => undefined, first: () => undefined, fit: () => undefined };
let leftOut = { clear: () => undefined, add: (_name, _why) => undefined };

/** `change(ids)` follows every picture that comes or goes, `first(size)` every new first one, `fit(way)` how pictures shall
 *  fill the size. */
export function mountInputs(listeners) {
  tell = listeners;
  leftOut = makeLeftOut(find("lu-inputs-left"));
  arrowsChoose(find("lu-fit"));
  find("lu-fit").addEventListener("click", (event) => {
    const button = event.target.closest("[role=radio]");
    if (button) tell.fit(button.dataset.key);
  });
  const file = find("lu-inputs-file");
  find("lu-inputs-add").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    addFiles([...file.files]);
    file.value = ""; // the same file may be chosen again
  });
}

/** Width and height of the first picture; null where there is none, or before it is known. */
export const firstSize = () => items[0]?.size ?? null;

export const countInputs = () => items.length;

/** How many are on their way. */
export const countSending = () => items.filter(({ id }) => !id).length;

/** True when every file has come; false when one did not, which the list of those left out says. */
export async function inputsSent() {
  const sent = await Promise.all(items.map((item) => item.sent));
  return sent.every(Boolean);
}

/** Why the picture cannot become an input of the chosen model; an empty text when it can. */
export function whyNoInput(output) {
  const max = model?.limits.images ?? 0;
  if (output.kind !== "image") return t("inputs.noVideo");
  if (!max) return model ? t("inputs.takesNone", { model: model.title }) : t("inputs.noModel");
  if (items.some((item) => item.id === output.id)) return t("inputs.already");
  return max > 1 && items.length >= max ? tooMany(max) : "";
}

const tooMany = (max) => t("inputs.tooMany", { model: model.title, count: max });

/** A picture that was made here. */
export function addInput(id) {
  leftOut.clear();
  makeRoom();
  items.push({ ...ofId(id), isNew: true });
  told();
}

/** A model that takes only one gets the new one instead. */
function makeRoom() {
  if (model.limits.images === 1) replaceItems([]);
}

/** A file that is taken out while it is sent is sent no further. */
function replaceItems(next) {
  for (const item of items) if (!next.includes(item)) item.stop?.abort();
  items = next;
}

function ofId(id) {
  count += 1;
  return { key: count, id, thumb: at(inputThumbPath(id)), percent: 100, sent: true, size: null, isNew: false };
}

export const takesPictures = () => Boolean(model?.limits.images);

/** Files as input pictures, as far as the model takes them; says so where it does not. */
export function addFiles(files) {
  const max = model?.limits.images ?? 0;
  if (!files.length || !model) return;
  if (!max) {
    toast(t("inputs.takesNone", { model: model.title }));
    return;
  }
  leftOut.clear();
  if (files.some(({ size }) => size <= MAX_BYTES)) makeRoom();
  for (const file of files) {
    if (file.size > MAX_BYTES) leave(file.name, t("inputs.tooLarge", { size: MAX_BYTES / 1e6 }));
    else if (items.length >= max) leave(file.name, tooMany(max));
    else items.push(send(file));
  }
  told();
}

/** The row may be far down while files are dropped anywhere. */
function leave(name, why) {
  leftOut.add(name, why);
  find("lu-inputs-left").scrollIntoView({ block: "center" });
}

/** The item of a file on its way. */
function send(file) {
  count += 1;
  const local = URL.createObjectURL(file);
  const item = { key: count, id: null, thumb: local, percent: 0, size: null, isNew: true, stop: new AbortController() };
  item.sent = transfer(item, file).finally(() => URL.revokeObjectURL(local));
  return item;
}

async function transfer(item, file) {
  try {
    const upload = await uploadPicture(file, (percent) => {
      item.percent = percent;
      draw();
    }, item.stop.signal);
    if (!items.includes(item)) return true; // removed meanwhile
    if (items.some((other) => other.id === upload.id)) {
      remove(item);
      toast(t("inputs.already"));
      return true;
    }
    const notes = saidList(upload, "notes");
    item.note = notes.length ? t("common.file", { name: file.name, text: together(...notes) }) : "";
    Object.assign(item, { id: upload.id, thumb: at(upload.thumb_url) });
    told();
    measured(item, upload);
    return true;
  } catch (error) {
    if (!items.includes(item)) return true;
    remove(item);
    leave(file.name, together(error.message, error.advice));
    return false;
  }
}

function measured(item, { width, height }) {
  item.size = { width, height };
  if (item.isNew && items[0] === item) tell.first(item.size);
  item.isNew = false;
  draw();
}

function remove(item) {
  replaceItems(items.filter((other) => other !== item));
  told();
}

const idsOf = () => items.filter((item) => item.id).map((item) => item.id);

const told = () => tell.change(idsOf());

/** The row as the model and the draft want it; what is on its way stays, whatever the draft says. */
export function drawInputs(chosenModel, ids, chosen) {
  model = chosenModel;
  shape = model.shapes.find((one) => one.shape === chosen.shape);
  fit = chosen.fit ?? "crop";
  if (ids.join() !== idsOf().join()) replaceItems([...ids.map(ofId), ...items.filter((item) => !item.id)]);
  draw();
}

function draw() {
  const { images: max, min_images: min } = model.limits;
  const add = find("lu-inputs-add");
  const hadFocus = add === document.activeElement;
  find("lu-inputs").hidden = max === 0;
  Object.assign(find("lu-inputs").dataset, { empty: items.length === 0, excess: items.length > max });
  const one = model.defaults.strength === null ? "inputs.first" : "inputs.start";
  setText(find("lu-inputs-label"), t(max === 1 ? one : min === 2 ? "inputs.firstLast" : "inputs.title"));
  setText(find("lu-inputs-count"), hintOf(min, max));
  setText(add.querySelector(".lu-inputs-wide"), t(max === 1 ? "inputs.dropOne" : "inputs.drop"));
  add.hidden = items.length >= max;
  find("lu-inputs-file").multiple = max > 1;
  setText(find("lu-inputs-note"), together(...items.map(({ note }) => note).filter(Boolean)));
  drawFit();
  keyed(find("lu-inputs-list"), items, { key: (item) => item.key, create, update });
  if (hadFocus && add.hidden) find("lu-inputs-list").querySelector("li:last-child button")?.focus();
}

/** The choice stands where it makes a difference, with what it costs. */
function drawFit() {
  const frame = frameOf(model, shape, firstSize());
  const shares = items.map(({ size }) => (size ? outsideOf(size, frame) : 0));
  const most = Math.max(0, ...shares);
  find("lu-fit-box").hidden = !model.limits.images || !most;
  for (const button of find("lu-fit").querySelectorAll("button")) {
    const isChosen = button.dataset.key === fit;
    button.setAttribute("aria-checked", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
  }
  const values = { percent: percent(most), size: shapeName(`${frame.width}x${frame.height}`) };
  setText(find("lu-fit-note"), t(`fit.${items.length > 1 ? "most" : "one"}_${fit}`, values));
}

function hintOf(min, max) {
  if (items.length > max) return t("inputs.excess", { count: items.length, max, excess: items.length - max });
  if (min > 1 && items.length < min) return t("inputs.neededBoth");
  if (items.length) return max > 1 ? t("inputs.count", { count: items.length, max }) : "";
  return min ? t("inputs.needed") : max > 1 ? t("inputs.upTo", { max }) : t("inputs.optional");
}

function create(item) {
  const image = el("img", {
    onload: () => {
      const known = items.find((one) => one.key === item.key);
      if (known?.id && !known.size) measured(known, { width: image.naturalWidth, height: image.naturalHeight });
    },
    onerror: () => {
      tile.dataset.gone = String(Boolean(item.id)); // kept in a draft for too long, or its file was deleted
      draw();
    },
  });
  const drop = () => {
    const next = tile.nextElementSibling ?? tile.previousElementSibling;
    const target = next?.querySelector("button");
    leftOut.clear();
    remove(item);
    (target ?? find("lu-inputs-add")).focus();
  };
  const tile = el(
    "li.lu-input-picture",
    {},
    image,
    el("span.lu-input-frame", { "aria-hidden": "true" }),
    el("span.lu-input-state.lu-num"),
    el("span.lu-input-number.lu-num", { "aria-hidden": "true" }),
    el("button.lu-input-remove", { type: "button", onclick: drop, title: t("common.remove") }, icon("close")),
  );
  return tile;
}

function update(tile, item) {
  const place = items.indexOf(item) + 1;
  const image = tile.querySelector("img");
  if (image.src !== item.thumb) image.src = item.thumb;
  image.alt = t("inputs.numbered", { place });
  drawFrame(tile, item.size);
  const isGone = tile.dataset.gone === "true";
  const state = item.id ? (isGone ? t("inputs.gone") : "") : item.percent < 100 ? percent(item.percent / 100) : t("inputs.checking");
  setText(tile.querySelector(".lu-input-state"), state);
  tile.title = isGone ? t("inputs.goneHint") : "";
  setText(tile.querySelector(".lu-input-number"), model.limits.images > 1 ? String(place) : "");
  tile.querySelector("button").setAttribute("aria-label", t("inputs.remove", { place }));
}

/** What of the picture will be seen; a square of it before its size is known. */
function drawFrame(tile, size) {
  if (!size) {
    delete tile.dataset.fit;
    return;
  }
  tile.dataset.fit = fit;
  for (const [name, box] of Object.entries(boxesOf(size, frameOf(model, shape, firstSize()), fit)))
    setStyles(tile, { [`--${name}-width`]: `${100 * box.width}%`, [`--${name}-height`]: `${100 * box.height}%` });
}
