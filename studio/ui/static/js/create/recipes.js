// The recipe of a file that somebody brought: what it says, what of it cannot be used here, and "Use recipe".
// Nothing changes before that. Not here: how files arrive (files.js), reading them (studio/library/foreign).

import { ApiError, readFileRecipe } from "../core/api.js";
import { el, find, icon } from "../core/dom.js";
import { shapeName } from "../core/format.js";
import { loraText } from "../core/settings.js";
import { modelOf } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { said, saidList } from "../core/translate_server.js";
import { chosenModel, offerUndo, useRecipe } from "./controls.js";
import { useGrid } from "./griddialog.js";
import { MAX_BYTES, addFiles, takesPictures } from "./inputs.js";

const SLOW_MS = 600;
// Two settings of A1111's kind, or a graph or recipe as JSON; the server knows for certain.
const SETTINGS = /\b(Steps|Sampler|CFG scale|Seed|Size): [^]*\b(Steps|Sampler|CFG scale|Seed|Size|Model): |^\s*\{[^]*"(class_type|sui_image_params|seed|nodes)"/;
const PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif"];

export function mountRecipes() {
  const file = find("lu-recipe-file");
  find("lu-recipe-choose").addEventListener("click", chooseFile);
  file.addEventListener("change", () => {
    const [chosen] = file.files;
    file.value = ""; // the same file may be chosen again
    if (chosen) offerRecipe(chosen, { isWanted: true });
  });
  find("lu-recipe").addEventListener("click", (event) => event.target.closest("[data-close]") && closeRecipe());
}

export const chooseFile = () => find("lu-recipe-file").click();

export const isRecipeOpen = () => !find("lu-recipe").hidden;

export function closeRecipe() {
  const panel = find("lu-recipe");
  const hadFocus = panel.contains(document.activeElement);
  panel.hidden = true;
  panel.replaceChildren();
  if (hadFocus) find("lu-recipe-choose").focus({ preventScroll: true });
}

/** Text with settings in it, as sites show it beside a picture, is offered as the recipe that it is. */
export function offerText(text) {
  if (!SETTINGS.test(text)) return;
  const file = new File([text], t("recipe.pasted"), { type: "text/plain" });
  offerRecipe(file, { isWanted: false }).catch(reportError);
}

/** True when the panel opened. Without a recipe it opens only for those who asked for one (`isWanted`). */
export async function offerRecipe(file, { isWanted }) {
  if (file.size > MAX_BYTES) {
    if (isWanted) openPanel(panelOfError(file, { title: t("recipe.tooLarge"), detail: t("recipe.tooLargeDetail", { size: MAX_BYTES / 1e6 }) }, null));
    return isWanted;
  }
  const slow = setTimeout(() => toast(t("recipe.reading", { name: file.name })), SLOW_MS);
  const input = await inputButton(file);
  try {
    const found = await readFileRecipe(file, chosenModel());
    if (!found.recipe && !isWanted) return false;
    openPanel(found.recipe ? panelOfRecipe(found, input) : panelOfNothing(file, input));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    openPanel(panelOfError(file, error, input));
  } finally {
    clearTimeout(slow);
  }
  return true;
}

/** Shows an offer below the prompt, in place of the one before. */
export function openPanel({ tone, children }) {
  const panel = find("lu-recipe");
  panel.dataset.tone = tone;
  panel.replaceChildren(...children);
  panel.hidden = false;
  panel.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "nearest" });
}

export function panelHead(title, name) {
  return el(
    "div.lu-recipe-head",
    {},
    icon(name),
    el("h2", { id: "lu-recipe-title" }, title),
    el("button.lu-icon-button", { type: "button", "data-close": true, "aria-label": t("common.close") }, icon("close")),
  );
}

function panelOfRecipe(found, input) {
  const use = () => {
    if (!useRecipe(found.recipe)) return toast(t("toast.noModel", { model: found.recipe.model }));
    offerUndo(t("recipe.filledToast"));
    // What it could not fill in stays in sight, beside what it could.
    const title = t(found.unusable.length ? "recipe.filledExcept" : "recipe.filled");
    if (remarks.length) openPanel({ tone: "good", children: [panelHead(title, "file"), ...remarks] });
    else closeRecipe();
    return undefined;
  };
  const useAxes = () => {
    closeRecipe();
    useGrid(found.recipe, found.grid);
  };
  const remarks = remarksOf(found);
  const children = [
    panelHead(t("recipe.from", { source: found.source }), "file"),
    el("p.lu-recipe-prompt", {}, found.recipe.prompt || t("recipe.noPrompt")),
    el("p.lu-recipe-facts.lu-num", {}, factsOf(found.recipe)),
    el(
      "div.lu-recipe-actions",
      {},
      el("button.lu-button.lu-accent", { type: "button", id: "lu-recipe-use", onclick: use }, t("recipe.use")),
      found.grid && el("button.lu-button", { type: "button", id: "lu-recipe-grid", onclick: useAxes }, t("detail.useGrid")),
      input,
    ),
    ...remarks,
  ];
  return { tone: "good", children };
}

function remarksOf(found) {
  const { unusable, notes } = found;
  const entry = (one) => el("li", {}, el("b", {}, said(one, "what")), ` ${said(one, "why")}`);
  const list = (title, items) => [
    el("h3", {}, title),
    el("ul.lu-recipe-list", { role: "list", "aria-label": title }, ...items),
  ];
  return [
    ...(unusable.length ? list(t("recipe.unusable"), unusable.map(entry)) : []),
    ...(notes.length ? list(t("recipe.notes"), saidList(found, "notes").map((note) => el("li", {}, note))) : []),
  ];
}

function factsOf(recipe) {
  const facts = [
    modelOf(recipe.model)?.title ?? recipe.model,
    recipe.shape && shapeName(recipe.shape, recipe.fps ?? modelOf(recipe.model)?.defaults.fps),
    recipe.steps && t("bar.steps", { count: recipe.steps }),
    recipe.seed !== null && t("bar.seed", { seed: String(recipe.seed) }),
    ...recipe.loras.map(loraText),
  ];
  return facts.filter(Boolean).join(" · ");
}

function panelOfNothing(file, input) {
  const children = [
    panelHead(t("recipe.none"), "file"),
    el("p.lu-recipe-facts", {}, t("recipe.noneDetail", { name: file.name })),
    el("div.lu-recipe-actions", {}, input),
  ];
  return { tone: "none", children };
}

function panelOfError(file, error, input) {
  const children = [
    panelHead(error.title, "alert"),
    el("p.lu-recipe-facts", { role: "alert" }, t("common.file", { name: file.name, text: together(error.detail, error.advice) })),
    el("div.lu-recipe-actions", {}, input),
  ];
  return { tone: "bad", children };
}

/** Only where the chosen model starts from pictures, and the file is a whole one. */
async function inputButton(file) {
  if (!takesPictures() || !PICTURES.includes(file.type) || !(await isWhole(file))) return null;
  const add = () => {
    closeRecipe();
    addFiles([file]);
  };
  return el("button.lu-button", { type: "button", id: "lu-recipe-input", onclick: add }, t("recipe.asInput"));
}

/** Whether all of a picture can be decoded: the server refuses a damaged one. */
const isWhole = (file) =>
  createImageBitmap(file).then(
    (bitmap) => {
      bitmap.close();
      return true;
    },
    () => false,
  );
