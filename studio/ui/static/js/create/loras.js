// The LoRAs of the recipe: added, weighed, given to an expert, taken out. The draft holds them as {ref, scale}, and with
// an {expert} where somebody chose one (controls.js); which files there are, the server says. Of a model with two experts
// a file may be there twice, once for each. Not here: bringing files along (lorafile.js).

import { readLoras } from "../core/api.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { expertName } from "../core/settings.js";
import { changed, isOperator, state } from "../core/store.js";
import { t } from "../core/text.js";

const SLIDER = { min: -1, max: 2, step: 0.05 }; // what is usual; typed numbers go further
const TYPED = { min: -20, max: 20, step: 0.05 };
const EXPERTS = ["high", "low"];
const MAX = 8;

let model = null;
let chosen = []; // as they are shown
let count = 0;
/** @type {(update: (loras: any[]) => any[]) => unknown} */
let tell = () => undefined;

/** `change(update)` is called with what makes the draft's LoRAs those that somebody wants now. */
export function mountLoras(change) {
  tell = change;
  find("lu-loras-add").addEventListener("click", add);
}

/** Files come and go on the server's disk: asked when the page opens, and whenever somebody is about to choose. */
export async function loadLoras() {
  const { loras, unusable } = await readLoras();
  state.loras = loras;
  state.unusableLoras = unusable;
  changed();
}

const loraOf = (ref) => state.loras?.find((lora) => lora.ref === ref) ?? null;

/** A LoRA as lists of choices name it. */
export const nameOf = (lora) => (lora.title === lora.ref ? lora.ref : `${lora.title} · ${lora.ref}`);

const fits = (lora, wanted) => lora.models.includes(wanted.id);

/** One expert takes the high noise away, the other the rest; only such models have a second guidance scale. */
const hasExperts = (wanted) => wanted.defaults.guidance_scale_2 !== null;

/** Those that the model can be asked to apply. One of another family waits for its model, as input pictures do; one that
 *  is not here stays, because without it the picture would be another one: the server says so. A model without experts
 *  takes each file once, and a choice of expert waits, too. */
export function lorasFor(wanted, loras) {
  const able = loras.filter(({ ref }) => {
    const lora = loraOf(ref);
    return !lora || fits(lora, wanted);
  });
  if (hasExperts(wanted)) return able;
  const seen = new Set();
  return able.filter(({ ref }) => !seen.has(ref) && seen.add(ref)).map(({ ref, scale }) => ({ ref, scale }));
}

/**
 * Names of those that a recipe has and this studio does not.
 * @param {{ ref: string }[]} loras
 */
export const missingLoras = (loras) => (state.loras ? loras.map(({ ref }) => ref).filter((ref) => !loraOf(ref)) : []);

export function drawLoras(chosenModel, loras) {
  model = chosenModel;
  chosen = lorasFor(model, loras);
  const offered = (state.loras ?? []).filter((lora) => fits(lora, model) && missingExpert(lora.ref) !== null);
  find("lu-loras-bring").hidden = !isOperator();
  find("lu-loras-note").hidden = !state.loras || chosen.length > 0 || offered.length > 0;
  setText(find("lu-loras-note"), t(isOperator() ? "loras.none" : "loras.noneAsk"));
  find("lu-loras-new").hidden = !offered.length || chosen.length >= MAX;
  keyed(find("lu-loras-choice"), offered, {
    key: ({ ref }) => ref,
    create: ({ ref }) => el("option", { value: ref }),
    update: (option, lora) => setText(option, nameOf(lora)),
  });
  setText(find("lu-loras-count"), chosen.length ? t("loras.count", { count: chosen.length, max: MAX }) : "");
  keyed(find("lu-loras-list"), chosen.map(numbered), { key: keyOf, create, update });
}

/** The expert that a file can still be added for: "" for as it says, null when it changes all that it can. */
function missingExpert(ref) {
  const rows = chosen.filter((lora) => lora.ref === ref);
  if (!rows.length) return "";
  const [{ expert }] = rows;
  return rows.length === 1 && EXPERTS.includes(expert) ? EXPERTS.find((one) => one !== expert) : null;
}

/** A file may have two rows, so a row is known by which of its file's it is. */
const numbered = (lora, place) => ({ ...lora, nth: chosen.slice(0, place).filter(({ ref }) => ref === lora.ref).length });
const keyOf = ({ ref, nth }) => (nth ? `${ref} ${nth}` : ref);

function add() {
  const ref = find("lu-loras-choice").value;
  if (ref) useLora(ref);
}

/** Adds a file to the recipe, if the chosen model and the recipe take it; tells whether they do. */
export function offerToRecipe(ref) {
  const lora = loraOf(ref);
  if (!lora || !fits(lora, model)) return false;
  if (chosen.length < MAX && missingExpert(ref) !== null) useLora(ref);
  return true;
}

function useLora(ref) {
  const expert = missingExpert(ref);
  tell((loras) => [...loras, { ref, scale: 1, ...(expert ? { expert } : {}) }]);
  rowOf(keyOf({ ref, nth: expert ? 1 : 0 }))?.querySelector("input[type=range]").focus();
}

function remove(lora) {
  const row = rowOf(keyOf(lora));
  const next = (row.nextElementSibling ?? row.previousElementSibling)?.querySelector("button");
  replace(lora, () => []);
  (next ?? find("lu-loras-choice")).focus();
}

/** Replaces the nth of the draft's entries of a file by what `make` returns. */
function replace({ ref, nth }, make) {
  let seen = 0;
  tell((loras) =>
    loras.flatMap((lora) => {
      if (lora.ref !== ref) return [lora];
      seen += 1;
      return seen - 1 === nth ? make(lora) : [lora];
    }),
  );
}

const weigh = (row, scale) => replace(row, (lora) => [{ ...lora, scale }]);

const choose = (row, expert) => replace(row, ({ ref, scale }) => [{ ref, scale, ...(expert ? { expert } : {}) }]);

const rowOf = (key) => [...find("lu-loras-list").querySelectorAll(":scope > *")].find((row) => row.dataset.key === key);

function create(lora) {
  count += 1;
  const id = `lu-lora-${count}`;
  const { ref } = lora;
  const slider = el("input", { id, type: "range", ...SLIDER, oninput: () => weigh(lora, Number(slider.value)) });
  // "-" on its way to "-1" is no number yet; the server says when it is out of range.
  const typed = () => number.value !== "" && weigh(lora, Number(number.value));
  const expert = el(
    "select.lu-input.lu-lora-expert",
    { onchange: () => choose(lora, expert.value) },
    ...["", ...EXPERTS, "both"].map((value) => el("option", { value })),
  );
  const number = el("input.lu-slider-value", {
    type: "number",
    ...TYPED,
    inputmode: "decimal",
    "aria-labelledby": `${id}-label lu-as-number`,
    oninput: typed,
    onblur: () => drawLoras(model, chosen),
  });
  return el(
    "li.lu-lora",
    {},
    el("label.lu-lora-name", { for: id, id: `${id}-label`, title: ref }),
    el("span.lu-lora-gone", {}),
    number,
    el("button.lu-icon-button", { type: "button", onclick: () => remove(lora), title: t("common.remove") }, icon("close")),
    slider,
    expert,
  );
}

function update(row, { ref, scale, expert }) {
  const [slider, number] = [row.querySelector("input[type=range]"), row.querySelector("input[type=number]")];
  const name = loraOf(ref)?.title ?? ref;
  setText(row.querySelector("label"), name);
  setText(row.querySelector(".lu-lora-gone"), state.loras && !loraOf(ref) ? t("loras.gone") : "");
  row.querySelector("button").setAttribute("aria-label", t("loras.remove", { name }));
  drawExpert(row.querySelector("select"), { name, expert: expert ?? "", own: loraOf(ref)?.expert ?? "both" });
  slider.value = scale;
  const share = (scale - SLIDER.min) / (SLIDER.max - SLIDER.min);
  slider.style.setProperty("--at", 100 * Math.min(1, Math.max(0, share)));
  if (number !== document.activeElement && number.value !== String(scale)) number.value = scale;
}

/** Which expert a file goes to: that which its name says unless somebody chose another. */
function drawExpert(select, { name, expert, own }) {
  select.hidden = !hasExperts(model);
  select.setAttribute("aria-label", t("loras.expertOf", { name }));
  for (const option of select.options) {
    setText(option, option.value ? expertName(option.value) : t("loras.expertAuto", { expert: expertName(own) }));
  }
  select.value = expert;
}
