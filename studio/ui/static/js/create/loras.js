// The LoRAs of the recipe: added, weighed, taken out. The draft holds them as {ref, scale} (controls.js); which files
// there are, the server says. Not here: bringing files along (lorafiles.js).

import { readLoras } from "../core/api.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { changed, state } from "../core/store.js";
import { t } from "../core/text.js";

const SLIDER = { min: -1, max: 2, step: 0.05 }; // what is usual; typed numbers go further
const TYPED = { min: -4, max: 4, step: 0.05 };
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
  state.loras = (await readLoras()).loras;
  changed();
}

const loraOf = (ref) => state.loras?.find((lora) => lora.ref === ref) ?? null;

const fits = (lora, wanted) => lora.models.includes(wanted.id);

/** Those that the model can be asked to apply. One of another family waits for its model, as input pictures do; one that
 *  is not here stays, because without it the picture would be another one: the server says so. */
export const lorasFor = (wanted, loras) =>
  loras.filter(({ ref }) => {
    const lora = loraOf(ref);
    return !lora || fits(lora, wanted);
  });

/** Names of those that a recipe has and this studio does not. */
export const missingLoras = (loras) => (state.loras ? loras.map(({ ref }) => ref).filter((ref) => !loraOf(ref)) : []);

export function drawLoras(chosenModel, loras) {
  model = chosenModel;
  chosen = lorasFor(model, loras);
  const taken = new Set(chosen.map(({ ref }) => ref));
  const offered = (state.loras ?? []).filter((lora) => fits(lora, model) && !taken.has(lora.ref));
  find("lu-loras").hidden = !chosen.length && !offered.length;
  find("lu-loras-new").hidden = !offered.length || chosen.length >= MAX;
  keyed(find("lu-loras-choice"), offered, {
    key: ({ ref }) => ref,
    create: ({ ref }) => el("option", { value: ref }),
    update: (option, lora) => setText(option, lora.title === lora.ref ? lora.ref : `${lora.title} · ${lora.ref}`),
  });
  setText(find("lu-loras-count"), chosen.length ? t("loras.count", { count: chosen.length, max: MAX }) : "");
  keyed(find("lu-loras-list"), chosen, { key: ({ ref }) => ref, create, update });
}

function add() {
  const ref = find("lu-loras-choice").value;
  if (!ref) return;
  tell((loras) => [...loras, { ref, scale: 1 }]);
  rowOf(ref)?.querySelector("input[type=range]").focus();
}

function remove(ref) {
  const row = rowOf(ref);
  const next = (row.nextElementSibling ?? row.previousElementSibling)?.querySelector("button");
  tell((loras) => loras.filter((lora) => lora.ref !== ref));
  (next ?? find("lu-loras-choice")).focus();
}

const weigh = (ref, scale) => tell((loras) => loras.map((lora) => (lora.ref === ref ? { ref, scale } : lora)));

const rowOf = (ref) => [...find("lu-loras-list").querySelectorAll(":scope > *")].find((row) => row.dataset.key === ref);

function create({ ref }) {
  count += 1;
  const id = `lu-lora-${count}`;
  const slider = el("input", { id, type: "range", ...SLIDER, oninput: () => weigh(ref, Number(slider.value)) });
  // "-" on its way to "-1" is no number yet; the server says when it is out of range.
  const typed = () => number.value !== "" && weigh(ref, Number(number.value));
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
    el("button.lu-icon-button", { type: "button", onclick: () => remove(ref), title: t("common.remove") }, icon("close")),
    slider,
  );
}

function update(row, { ref, scale }) {
  const [slider, number] = [row.querySelector("input[type=range]"), row.querySelector("input[type=number]")];
  const name = loraOf(ref)?.title ?? ref;
  setText(row.querySelector("label"), name);
  setText(row.querySelector(".lu-lora-gone"), state.loras && !loraOf(ref) ? t("loras.gone") : "");
  row.querySelector("button").setAttribute("aria-label", t("loras.remove", { name }));
  slider.value = scale;
  const share = (scale - SLIDER.min) / (SLIDER.max - SLIDER.min);
  slider.style.setProperty("--at", 100 * Math.min(1, Math.max(0, share)));
  if (number !== document.activeElement && number.value !== String(scale)) number.value = scale;
}
