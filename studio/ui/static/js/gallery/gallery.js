// The gallery view: what is searched for, what is selected, and what the keys mean.
// Not here: the wall itself (grid.js), the list behind it (outputs.js), one output alone (detail.js), two (compare.js).

import { readOutput } from "../core/api.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { means } from "../core/keymap.js";
import { mayTrain } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { dropPart, isShown, onView, partInAddress, showView } from "../core/views.js";
import { askTags, mountAskTags } from "./asktags.js";
import { closeCompare, compareFromElsewhere, isComparing, mountCompare, openCompare } from "./compare.js";
import { closeDetail, detailOutput, drawDetail, isDetailOpen, mountDetail, openDetail, pressDetail } from "./detail.js";
import { drawFilters, emptyTextOf, isNarrowed, isTrash, mountFilters, readFilters, resetFilters } from "./filters.js";
import { currentIndex, drawGrid, focusTile, indexOfTile, mountGrid, scrollToTop, step } from "./grid.js";
import { trainOn } from "../train/train.js";
import {
  changedElsewhere,
  download,
  emptyTrash,
  mark,
  purge,
  refreshJobs,
  restore,
  tag,
  takeRemake,
  throwAway,
} from "./output_actions.js";
import {
  countOutputs,
  indexOf,
  isCurrent,
  loadedOutputs,
  locate,
  mountOutputs,
  need,
  outputAt,
  replaceOutput,
  search,
  takeOut,
} from "./outputs.js";

const SEARCH_MS = 120; // while somebody types, or jobs end

let chosen = new Set(); // ids
let anchor = null; // where a range with Shift begins
let isChoosing = false; // taps select instead of opening
let fresh = 0; // made since the list was read
let isRead = false;
let isStale = false; // outputs may have changed without a word
let searchTimer = 0;

export function mountGallery() {
  mountOutputs(redraw, say);
  mountGrid({ count: countOutputs, at: outputAt, need, isChosen: (output) => chosen.has(output.id) });
  mountFilters({ change: load, type: loadSoon });
  mountDetail({ close: focusTile, trash: (output) => discard([output]) });
  mountCompare({ close: () => (isDetailOpen() ? find("lu-detail-title").focus() : focusTile(currentIndex())) });
  mountAskTags();
  find("lu-gallery-grid").addEventListener("click", click);
  find("lu-gallery-new").addEventListener("click", load);
  find("lu-gallery-purge").addEventListener("click", () => run(emptyTrash()));
  find("lu-gallery-choose").addEventListener("click", () => setChoosing(!isChoosing));
  onView(openGallery);
}

/** "Back" closes what lies over the wall before it leaves the gallery; who returns finds the wall as it was left. */
export function openGallery() {
  if (!isShown("gallery")) while (closeTop());
  else if (isComparing()) closeCompare();
  else if (partInAddress()) openNamed(partInAddress());
  else if (!closeTop()) refresh();
}

/** The output that the address names: of a bookmark, or after a reload. */
async function openNamed(id) {
  if (isDetailOpen() && detailOutput()?.id === id) return;
  try {
    const output = await readOutput(id);
    if (isNarrowed()) resetFilters();
    await load();
    const index = await locate(output);
    if (partInAddress() !== id) return; // somebody went on meanwhile
    if (index >= 0) return openDetail(index);
    say({ message: t(output.trashed_at === null ? "gallery.notListed" : "gallery.inTrash") });
  } catch (error) {
    if (!isRead) await load();
    say(error);
  }
  if (isDetailOpen()) closeDetail();
  dropPart();
}

async function refresh() {
  if (!isRead || isStale || !(await isCurrent(readFilters()).catch(() => false))) load();
}

/** False when there is nothing over the wall. */
function closeTop() {
  if (isComparing()) closeCompare();
  else if (isDetailOpen()) closeDetail();
  else return false;
  return true;
}

/** A job that ended well while the page is open. */
export function noteDone(job) {
  const original = takeRemake(job);
  if (original) offerComparison(original, job.outputs[0].id);
  noteMade(job.outputs.length);
}

/** So many new outputs. Nothing moves under the hands of somebody who is busy with the wall. */
export function noteMade(count) {
  if (!isShown("gallery") || isTrash()) return;
  fresh += count;
  if (isBusy() || find("lu-gallery-scroll").scrollTop > 0) drawFresh();
  else loadSoon(); // several jobs may have ended at once
}

const isBusy = () => isDetailOpen() || isComparing() || chosen.size > 0 || focusedIndex() !== null;

/** What was done to outputs; what this page did itself is in the list already. */
export async function noteOutputs({ ids, job_ids, change }) {
  const others = changedElsewhere(ids);
  if (!others.length) return;
  refreshJobs(job_ids);
  if (!isRead) return;
  if (change === "marked") {
    const known = loadedOutputs().filter(({ id }) => others.includes(id));
    for (const { id } of known) readOutput(id).then(replaceOutput, () => undefined);
  } else if (isTrash() !== (change === "trashed")) {
    takeOut(others);
  } else if (isShown("gallery") && !isBusy()) {
    await refresh();
  }
}

/** After a gap in the events: the wall is read anew, now or when nobody is busy with it any more. */
export function noteGap() {
  isStale = isRead;
  if (isRead && isShown("gallery") && !isBusy() && find("lu-gallery-scroll").scrollTop === 0) loadSoon();
}

/** One output of the wall, large. */
export async function openOutput(id) {
  if (isNarrowed()) resetFilters();
  showView("gallery");
  await load();
  if (indexOf(id) >= 0) openDetail(indexOf(id));
}

function offerComparison(original, id) {
  const compare = async () => {
    try {
      compareFromElsewhere(original, await readOutput(id));
    } catch (error) {
      say(error);
    }
  };
  toast(t("gallery.madeAgain"), { label: t("compare.title"), act: compare });
}

function loadSoon() {
  clearTimeout(searchTimer);
  searchTimer = setTimeout(load, SEARCH_MS);
}

async function load() {
  clearTimeout(searchTimer);
  say(null);
  try {
    if (!(await search(readFilters()))) return;
    fresh = 0;
    isRead = true;
    isStale = false;
    chosen.clear();
    scrollToTop();
    redraw();
    await drawFilters();
  } catch (error) {
    say(error);
  }
}

function redraw() {
  drawGrid();
  drawCount();
  drawEmpty();
  drawChosen();
  drawFresh();
  if (isDetailOpen()) drawDetail();
}

function drawCount() {
  const count = countOutputs();
  find("lu-gallery-purge").hidden = !isTrash() || count === 0;
  setText(find("lu-gallery-count"), t(isTrash() ? "trash.count" : "gallery.count", { count }));
}

function drawFresh() {
  find("lu-gallery-new").hidden = fresh === 0;
  setText(find("lu-gallery-new"), t("gallery.showNew", { count: fresh }));
}

function drawEmpty() {
  const empty = find("lu-gallery-empty");
  empty.hidden = countOutputs() > 0;
  if (empty.hidden) return;
  const { title, text } = emptyTextOf();
  const button = (label, onclick) => el("button.lu-button", { type: "button", onclick }, label);
  empty.replaceChildren(
    el("h3", {}, title),
    el("p", {}, text),
    isNarrowed() ? button(t("filter.clear"), resetFilters) : button(t("view.create"), () => showView("create")),
  );
}

function say(error) {
  setText(find("lu-gallery-message"), error ? together(error.message, error.advice) : "");
}

// Tiles

function click(event) {
  const index = indexOfTile(event.target);
  const output = index === null ? null : outputAt(index);
  if (!output) return;
  focusTile(index);
  if (event.target.closest(".lu-shot-favourite")) mark([output], !output.favourite).catch(say);
  else if (event.shiftKey) chooseRange(index);
  else if (isChoosing || event.ctrlKey || event.metaKey || event.target.closest(".lu-shot-choose")) toggle(index);
  else openDetail(index);
}

const focusedIndex = () => indexOfTile(document.activeElement ?? document.body);

// What is selected

function setChoosing(is) {
  isChoosing = is;
  find("lu-gallery-choose").setAttribute("aria-pressed", String(is));
  if (!is) clearChosen();
}

const chosenOutputs = () => loadedOutputs().filter((output) => chosen.has(output.id));

function clearChosen() {
  chosen.clear();
  redraw();
}

function toggle(index) {
  const output = outputAt(index);
  if (!chosen.delete(output.id)) chosen.add(output.id);
  anchor = index;
  redraw();
}

function chooseRange(index) {
  const from = anchor ?? index;
  for (let place = Math.min(from, index); place <= Math.max(from, index); place += 1) {
    const output = outputAt(place);
    if (output) chosen.add(output.id); // what was never in sight is not selected unseen
  }
  redraw();
}

/** Says how many they are, beside what can be done with them. */
const COUNT = { key: "count", name: "", label: "", act: null };

function drawChosen() {
  const bar = find("lu-chosen");
  bar.hidden = chosen.size === 0;
  find("lu-gallery").dataset.choosing = String(isChoosing || chosen.size > 0);
  if (bar.hidden) return;
  keyed(bar, [COUNT, ...actionsOf(chosenOutputs())], {
    key: (item) => item.key,
    create: (item) => (item === COUNT ? el("span.lu-num", { role: "status" }) : button(item)),
    update: (element, item) => {
      if (item === COUNT) return setText(element, t("gallery.chosen", { count: chosen.size }));
      setText(element.querySelector("span"), item.label);
      element.onclick = item.act;
      return undefined;
    },
  });
}

const button = ({ name, label }) =>
  el("button.lu-button", { type: "button", title: label }, icon(name), el("span", {}, label));

function actionsOf(outputs) {
  const clear = { key: "clear", name: "close", label: t("gallery.unselect"), act: () => setChoosing(false) };
  if (isTrash())
    return [
      { key: "restore", name: "retry", label: t("trash.restore"), act: () => run(restore(outputs)) },
      { key: "purge", name: "trash", label: t("trash.purge"), act: () => run(purge(outputs)) },
      clear,
    ];
  const isMarked = outputs.every((output) => output.favourite);
  return [
    {
      key: "favourite",
      name: "star",
      label: t(isMarked ? "gallery.noFavourite" : "gallery.favourite"),
      act: () => mark(outputs, !isMarked).catch(say),
    },
    { key: "tag", name: "tag", label: t("gallery.addTag"), act: () => addTags(outputs).catch(say) },
    { key: "download", name: "download", label: t("gallery.zip"), act: () => download(outputs) },
    ...(outputs.length === 2
      ? [{ key: "compare", name: "compare", label: t("compare.title"), act: () => openCompare(...outputs) }]
      : []),
    ...(mayTrain() && outputs.some(({ kind }) => kind === "image")
      ? [{ key: "train", name: "spark", label: t("train.onThese"), act: () => learnFrom(outputs) }]
      : []),
    { key: "trash", name: "trash", label: t("trash.throw"), act: () => discard(outputs) },
    clear,
  ];
}

function learnFrom(outputs) {
  setChoosing(false);
  trainOn(outputs);
}

async function addTags(outputs) {
  const tags = await askTags(outputs.length);
  if (tags.length) await tag(outputs, tags);
}

/** Ends the selection with what was done about it. */
async function run(done) {
  try {
    if ((await done) === false) return;
    setChoosing(false);
    await drawFilters();
  } catch (error) {
    say(error);
  }
}

/** Into the trash; what lies there already is deleted for ever, if that is meant. */
const discard = (outputs) => run(isTrash() ? purge(outputs) : throwAway(outputs, load));

// Keys

/** True when the key meant something here. */
export function pressGallery(event) {
  if (isComparing()) return false;
  if (isDetailOpen()) return pressDetail(event);
  const moves = {
    ArrowLeft: { by: -1 },
    ArrowRight: { by: 1 },
    ArrowUp: { rows: -1 },
    ArrowDown: { rows: 1 },
  };
  const index = focusedIndex();
  const output = index === null ? null : outputAt(index);
  if (moves[event.key]) index === null ? focusTile(currentIndex()) : step(moves[event.key]);
  else if (means(event, "search")) find("lu-gallery-search").focus();
  else if (!output) return false;
  else if (means(event, "favourite")) mark([output], !output.favourite).catch(say);
  else if (means(event, "select")) toggle(index);
  else if (means(event, "trash")) discard(chosen.size ? chosenOutputs() : [output]);
  else return false;
  return true;
}

/** One layer a press; false when there is none left here. */
export function escapeGallery() {
  if (isComparing() || isDetailOpen()) history.back();
  else if (isChoosing || chosen.size) setChoosing(false);
  else return false;
  return true;
}
