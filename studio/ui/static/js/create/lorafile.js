// LoRA files that somebody brings to Create, chosen at the field or dropped on the page: sent as the System view sends
// them, by those who may, and then in the recipe. Not here: the list of files (system/lorafiles.js).

import { uploadLora } from "../core/api.js";
import { el, find, setText } from "../core/dom.js";
import { percent } from "../core/format.js";
import { isOperator, modelOf } from "../core/store.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { clearProblem, showProblems } from "./controls.js";
import { loadLoras, offerToRecipe } from "./loras.js";
import { closeRecipe, openPanel, panelHead } from "./recipes.js";

const NAMED = 3; // models that a file fits

export const isLora = (file) => /\.safetensors$/i.test(file.name);

export function mountLoraFile() {
  const file = find("lu-loras-file");
  find("lu-loras-bring").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    const files = [...file.files];
    file.value = ""; // the same file may be chosen again
    bringIn(files);
  });
}

/** Sends a file; meanwhile the button rests, and `place` says how far it is. */
export async function sendLora(file, button, place) {
  button.disabled = true;
  try {
    const onPercent = (done) => setText(place, t("loras.sending", { name: file.name, percent: percent(done / 100) }));
    return await uploadLora(file, onPercent);
  } finally {
    button.disabled = false;
    setText(place, "");
  }
}

/** Files that were dropped: kept for everybody, so only when somebody says so. */
export function offerLoras(files) {
  const names = files.map(({ name }) => `“${name}”`).join(", ");
  const take = () => {
    closeRecipe();
    bringIn(files);
  };
  const count = files.length;
  openPanel({
    tone: isOperator() ? "good" : "none",
    children: [
      panelHead(t("loras.offer", { count }), "file"),
      el("p.lu-recipe-facts", {}, t(isOperator() ? "loras.offerText" : "loras.offerAsk", { names })),
      isOperator() &&
        el(
          "div.lu-recipe-actions",
          {},
          el("button.lu-button.lu-accent", { type: "button", id: "lu-lora-take", onclick: take }, t("loras.take")),
        ),
    ].filter(Boolean),
  });
}

/** One after the other; what is wrong with one says so at the field, and the rest still comes. */
async function bringIn(files) {
  clearProblem("loras");
  const problems = [];
  for (const file of files) {
    try {
      const lora = await sendLora(file, find("lu-loras-bring"), find("lu-loras-state"));
      await loadLoras();
      toast(offerToRecipe(lora.ref) ? t("loras.added", { name: lora.title }) : elsewhere(lora));
    } catch (error) {
      problems.push(t("common.file", { name: file.name, text: together(error.message, error.advice) }));
    }
  }
  if (problems.length) showProblems({ loras: together(...problems) });
}

/** A file that the chosen model cannot use is kept all the same. */
function elsewhere({ title: name, models }) {
  if (!models.length) return t("loras.addedNowhere", { name });
  const titles = models.slice(0, NAMED).map((id) => modelOf(id)?.title ?? id);
  return t("loras.addedElsewhere", { name, models: titles.join(", ") });
}
