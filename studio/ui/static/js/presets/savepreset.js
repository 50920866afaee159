// "Save as a preset": the shown output with a title, and its picture as the thumbnail.

import { at, savePreset } from "../core/api.js";
import { find, setText } from "../core/dom.js";
import { recall, remember } from "../core/memory.js";
import { clearOnChange, focusProblem, tellProblems } from "../core/problems.js";
import { isFocused, shownJob, shownOutput } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";

const AUTHOR = "lumesh.author";
const TITLE_CHARS = 60;
const FIELDS = ["title", "description", "author", "licence", "tags"];

let output = null;

export function mountSavePreset() {
  const dialog = find("lu-save");
  dialog.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) dialog.close();
  });
  clearOnChange(dialog, "preset");
  find("lu-save-form").addEventListener("submit", (event) => {
    event.preventDefault();
    save();
  });
}

export function openSavePreset() {
  const job = shownJob();
  const shown = job?.state === "done" && !job.sheet ? shownOutput() : null;
  if (shown && (job.outputs.length === 1 || isFocused(job))) saveAsPreset(shown, job.recipe);
}

/** Opens the dialog for any output. */
export function saveAsPreset(chosen, recipe) {
  output = chosen;
  for (const name of FIELDS) find(`lu-save-${name}`).value = "";
  find("lu-save-title").value = shorten(recipe.prompt);
  find("lu-save-author").value = recall(AUTHOR) ?? "";
  find("lu-save-thumb").src = at(output.thumb_url);
  const isBased = recipe.images.length > 0;
  setText(find("lu-save-seed-text"), seedText(output.kind === "video", isBased));
  const isStrong = isBased && recipe.strength !== null;
  setText(find("lu-save-note"), isBased ? t(isStrong ? "preset.noInputsStrength" : "preset.noInputs", { strength: recipe.strength }) : "");
  show({});
  find("lu-save").showModal();
  find("lu-save-title").select();
}

const seedText = (isVideo, isBased) =>
  isVideo
    ? t(isBased ? "preset.keepSeedBasedVideo" : "preset.keepSeedVideo")
    : t(isBased ? "preset.keepSeedBased" : "preset.keepSeed");

/** Whole words of the prompt. */
function shorten(prompt) {
  const line = prompt.replace(/\s+/g, " ");
  return line.length <= TITLE_CHARS ? line : line.slice(0, TITLE_CHARS + 1).replace(/\s\S*$/, "");
}

async function save() {
  const values = Object.fromEntries(FIELDS.map((name) => [name, find(`lu-save-${name}`).value]));
  const tags = values.tags.split(",").map((tag) => tag.trim()).filter(Boolean);
  try {
    await savePreset({ ...values, tags, output: output.id, keep_seed: find("lu-save-seed").checked });
  } catch (error) {
    const known = Object.fromEntries(
      Object.entries(error.fields).filter(([field]) => FIELDS.includes(field.split(".")[0])),
    );
    show(Object.keys(known).length ? known : { preset: together(error.message, error.advice) });
    return;
  }
  remember(AUTHOR, values.author);
  find("lu-save").close();
  toast(t("preset.saved"));
}

/** Messages at their fields; one about a single tag stands at the tags. */
function show(problems) {
  const messages = Object.entries(problems).map(([field, message]) => [field.split(".")[0], message]);
  tellProblems(find("lu-save"), Object.fromEntries(messages));
  focusProblem(find("lu-save"));
}
