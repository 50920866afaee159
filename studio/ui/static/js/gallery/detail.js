// One output alone: large, with all of its settings and what can be done with it.

import { at, inputThumbPath, readJob, readUsage } from "../core/api.js";
import { copyText } from "../core/clipboard.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { MAX_SCALE, costText, hasPrice } from "../core/format.js";
import { means } from "../core/keymap.js";
import { madeAt, makingOf, settingsOf } from "../core/settings.js";
import { hasWorkers, isMine, state } from "../core/store.js";
import { t } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { videoOf } from "../core/video.js";
import { keepPart, openPart, showView } from "../core/views.js";
import { offerUndo, usePrompt, useRecipe, useSeed } from "../create/controls.js";
import { useGrid } from "../create/griddialog.js";
import { addInput, whyNoInput } from "../create/inputs.js";
import { saveAsPreset } from "../presets/savepreset.js";
import { makeAgain, mark, readTags, setTags } from "./output_actions.js";
import { countOutputs, indexOf, outputAt, reach } from "./outputs.js";

let place = 0;
let shown = null; // as it was last drawn
let total = null; // what all of the visitor's jobs have cost
let tags = null; // the form of the output `tags.dataset.output`
/** @type {Map<string, string | null>} */
const madeBy = new Map(); // a job's id -> its worker, where there are several; null while it is asked
let saving = Promise.resolve(true); // tags, one change after the other: each is made of those before it
/** @type {{ close: (index: number) => unknown, trash: (output: any) => unknown }} */
let tell = { close: () => undefined, trash: () => undefined };

/** `close(index)` gives the focus back to the wall; `trash(output)` throws it away, or deletes what is in the trash. */
export function mountDetail(listeners) {
  tell = listeners;
  find("lu-detail-close").addEventListener("click", () => history.back());
  find("lu-detail-newer").addEventListener("click", () => turn(-1));
  find("lu-detail-older").addEventListener("click", () => turn(1));
}

export const isDetailOpen = () => !find("lu-detail").hidden;

/** The output that stands alone; null while there is none. */
export const detailOutput = () => shown;

export function openDetail(index) {
  place = index;
  shown = null;
  openPart(outputAt(index).id); // for bookmarks, and for "back"
  find("lu-detail").hidden = false;
  find("lu-gallery-main").inert = true;
  drawDetail();
  find("lu-detail-title").focus({ preventScroll: true });
  readUsage().then(showTotal, () => undefined); // a line less
}

function showTotal({ mine }) {
  total = mine;
  if (shown) keepFocus(() => drawBody(shown));
}

async function askWorker(jobId) {
  if (madeBy.has(jobId)) return;
  madeBy.set(jobId, null);
  const job = await readJob(jobId).catch(() => null); // a line less
  if (!job?.worker) return;
  madeBy.set(jobId, job.worker);
  if (shown?.job_id === jobId) keepFocus(() => drawBody(shown));
}

export function closeDetail() {
  find("lu-detail").hidden = true;
  find("lu-gallery-main").inert = false;
  find("lu-detail-stage").replaceChildren(); // a film goes on playing where nobody sees it
  shown = null;
  if (place >= 0) tell.close(place);
}

/** There is nothing to show; at once, or every redraw until "back" has happened would go back once more. */
function leave() {
  closeDetail();
  history.back();
}

/** To the next older output, or with -1 to the next newer one. */
export async function turn(step) {
  const next = place + step;
  if (next < 0 || next >= countOutputs()) return;
  await reach(next).catch((error) => toast(error.message));
  if (!outputAt(next)) return;
  place = next;
  shown = null;
  drawDetail();
}

/** The same output wherever it is now; what took the place of one that was thrown away, or nothing left closes. */
export function drawDetail() {
  const now = shown ? indexOf(shown.id) : -1;
  if (now >= 0) place = now;
  place = Math.min(place, countOutputs() - 1);
  if (place < 0) return leave();
  const output = outputAt(place);
  if (!output) return reach(place).then((found) => (found ? drawDetail() : leave()), (error) => toast(error.message));
  setText(find("lu-detail-title"), t("detail.place", { place: place + 1, total: countOutputs() }));
  find("lu-detail-newer").disabled = place === 0;
  find("lu-detail-older").disabled = place === countOutputs() - 1;
  if (shown?.id !== output.id) {
    drawMedia(output);
    keepPart(output.id);
  }
  if (shown !== output) keepFocus(() => drawBody(output));
  shown = output;
  if (hasWorkers() && !output.grid) askWorker(output.job_id);
  return undefined;
}

/** A button that is drawn anew keeps the focus; one that is gone gives it to the heading. */
function keepFocus(redraw) {
  const body = find("lu-detail-body");
  const focused = document.activeElement;
  const had = body.contains(focused);
  redraw();
  if (!had || body.contains(focused)) return;
  const again = [...body.querySelectorAll(focused.localName)].find(
    ({ id, textContent }) => id === focused.id && textContent === focused.textContent,
  );
  (again ?? find("lu-detail-title")).focus({ preventScroll: true });
}

function drawMedia(output) {
  const { recipe } = output;
  const media =
    output.kind === "video"
      ? videoOf(output, { recipe }, { controls: true })
      : el("button.lu-detail-enlarge", { type: "button", "aria-label": t("canvas.enlarge"), data: { enlarge: "" } },
          el("img.lu-result", { src: at(output.url), alt: recipe.prompt, decoding: "async" }));
  media.style.setProperty("--ratio", String(output.width / output.height));
  // A small picture is shown larger, up to where it is only blurry.
  media.style.setProperty("--widest", `${output.width * MAX_SCALE}px`);
  const stage = find("lu-detail-stage");
  const had = stage.contains(document.activeElement);
  stage.replaceChildren(media);
  if (had) media.focus({ preventScroll: true });
  find("lu-detail-side").scrollTop = 0;
}

function drawBody(output) {
  const { recipe } = output;
  const worker = madeBy.get(output.job_id);
  const making = [...makingOf(output), ...(worker ? [{ name: t("workers.madeBy"), value: worker }] : [])];
  const isMakingOpen = Boolean(find("lu-detail-body").querySelector("details.lu-making")?.open);
  const above = [
    el("div.lu-detail-use", {}, ...useActions(output)),
    el("p.lu-detail-prompt", {}, recipe.prompt),
    el("div.lu-detail-actions", {}, ...actionsOf(output)),
  ];
  const below = [
    ...(recipe.images.length ? [picturesOf(recipe.images)] : []),
    factsOf([
      ...settingsOf(output).filter(({ id }) => id !== "prompt"),
      { name: t("detail.made"), value: madeAt(output) },
      ...(!hasPrice(output) ? [] : [{ name: t("detail.cost"), value: costText(output) }]),
      ...(total && hasPrice(total) ? [{ name: t("detail.total"), value: costText(total) }] : []),
      ...(output.owner === state.me?.owner ? [] : [{ name: t("detail.by"), value: output.owner }]),
    ]),
    ...(making.length
      ? [el("details.lu-making", { open: isMakingOpen }, el("summary", {}, t("detail.madeWith")), factsOf(making))]
      : []),
  ];
  drawAround(isMine(output) ? tagsOf(output) : null, above, below);
}

/** `kept` never leaves the page while the rest is drawn anew: what is being typed in it stays, with the caret. */
function drawAround(kept, above, below) {
  const body = find("lu-detail-body");
  if (kept?.parentElement !== body) return body.replaceChildren(...above, ...(kept ? [kept] : []), ...below);
  for (const child of [...body.children]) if (child !== kept) child.remove();
  kept.before(...above);
  kept.after(...below);
  return undefined;
}

const factsOf = (facts) =>
  el("dl.lu-facts", {}, ...facts.flatMap(({ name, value }) => [el("dt", {}, name), el("dd", {}, value)]));

const action = (name, label, onclick, { style = "", id = null, pressed = null } = {}) =>
  el(
    `button.lu-button${style}`,
    { type: "button", id, onclick, title: label, "aria-pressed": pressed === null ? null : String(pressed) },
    icon(name),
    el("span", {}, label),
  );

function useActions({ recipe, seed, grid }) {
  const create = { label: t("view.create"), act: () => showView("create") };
  const useAll = () => {
    if (!useRecipe(recipe, seed)) return toast(t("toast.noModel", { model: recipe.model }));
    showView("create");
    return offerUndo(t("toast.settings"));
  };
  const prompt = () => {
    usePrompt(recipe);
    offerUndo(t("toast.promptFilled"), create);
  };
  const seedOnly = () => {
    useSeed(seed);
    offerUndo(t("toast.seed", { seed: String(seed) }), create);
  };
  return [
    grid
      ? action("grid", t("detail.useGrid"), () => useGrid(recipe, grid), { style: ".lu-accent", id: "lu-detail-use" })
      : action("sliders", t("detail.useAll"), useAll, { style: ".lu-accent", id: "lu-detail-use" }),
    action("file", t("detail.usePrompt"), prompt),
    action("seed", t("detail.useSeed"), seedOnly),
  ];
}

function actionsOf(output) {
  const copy = async () => {
    await copyText(output.recipe.prompt);
    toast(t("toast.promptCopied"));
  };
  if (output.trashed_at !== null)
    return [
      action("copy", t("bar.copy"), copy),
      ...downloadsOf(output),
      action("trash", t("trash.purge"), () => tell.trash(output)),
    ];
  const mine = isMine(output);
  const favourite = { id: "lu-detail-favourite", pressed: output.favourite };
  return [
    ...(mine ? [action("star", t("gallery.favourite"), () => toggleFavourite(output), favourite)] : []),
    action("copy", t("bar.copy"), copy),
    ...downloadsOf(output),
    // Of a sheet the recipe alone would be one picture of it.
    ...(output.grid ? [] : [action("retry", t("detail.makeAgain"), () => makeAgain(output).catch((error) => toast(error.message)))]),
    ...(mine && output.kind === "image" ? [action("input", t("bar.input"), () => useAsInput(output))] : []),
    action("bookmark", t("preset.save"), () => saveAsPreset(output, output.recipe)),
    ...(mine ? [action("trash", t("trash.throw"), () => tell.trash(output), { id: "lu-detail-trash" })] : []),
  ];
}

function downloadsOf({ url, kind }) {
  const link = (label, query) =>
    el("a.lu-button", { href: `${at(url)}?download=true${query}`, download: "" }, icon("download"), el("span", {}, label));
  const others = kind === "video" ? [link("GIF", "&as=gif"), link("WebP", "&as=webp")] : [];
  return [link(t("bar.download"), ""), ...others];
}

const toggleFavourite = (output) =>
  mark([output], !output.favourite).catch((error) => toast(error.message));

function useAsInput(output) {
  const refusal = whyNoInput(output);
  if (!refusal) addInput(output.id);
  toast(refusal || t("inputs.added"), refusal ? null : { label: t("view.create"), act: () => showView("create") });
}

/** The same form for as long as the output is the same. */
function tagsOf(output) {
  if (tags?.dataset.output !== output.id) tags = newTagsOf(output.id);
  keyed(tags.firstElementChild, output.tags, { key: (tag) => tag, create: (tag) => chipOf(output.id, tag) });
  return tags;
}

function newTagsOf(id) {
  const labels = { "aria-label": t("detail.addTags"), placeholder: t("gallery.addTag") };
  const input = el("input.lu-input", { id: "lu-detail-tag", ...labels, maxlength: 200 });
  const add = async (event) => {
    event.preventDefault();
    const typed = input.value;
    if (!readTags(typed).length) return;
    input.value = "";
    const isSaved = await saveTags(id, (known) => [...known, ...readTags(typed)]);
    if (!isSaved && !input.value) input.value = typed;
  };
  return el("form.lu-detail-tags", { data: { output: id }, onsubmit: add }, el("span.lu-detail-chips"), input);
}

const chipOf = (id, tag) =>
  el(
    "button.lu-chip",
    {
      type: "button",
      title: t("common.remove"),
      "aria-label": t("detail.removeTag", { tag }),
      onclick: () => saveTags(id, (known) => known.filter((other) => other !== tag)),
    },
    el("span", {}, tag),
    icon("close"),
  );

/** Whether it worked. */
function saveTags(id, change) {
  const save = async () => {
    const output = outputAt(indexOf(id));
    if (output) await setTags(output, change(output.tags));
    return Boolean(output);
  };
  saving = saving.then(save).catch((error) => {
    toast(error.message);
    return false;
  });
  return saving;
}

/** What it started from; a picture that is gone shows as nothing. */
function picturesOf(ids) {
  const picture = (id) => {
    const image = el("img", { src: at(inputThumbPath(id)), alt: t("inputs.picture"), loading: "lazy" });
    image.onerror = () => image.remove();
    return image;
  };
  return el("div.lu-detail-inputs", {}, ...ids.map(picture));
}

/** Keys while one output is open; true when one meant something. */
export function pressDetail(event) {
  const output = outputAt(place);
  if (event.target.closest?.("video")) return false; // its own controls take arrows
  if (event.key === "ArrowLeft") turn(-1);
  else if (event.key === "ArrowRight") turn(1);
  else if (!output) return false;
  else if (means(event, "favourite") && output.trashed_at === null) toggleFavourite(output);
  else if (means(event, "trash")) tell.trash(output);
  else return false;
  return true;
}
