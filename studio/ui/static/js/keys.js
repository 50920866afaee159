// The keyboard: what keymap.js names is done here. Ctrl+Enter works everywhere. A letter means the result that has the
// focus; typed anywhere else on Create it goes into the prompt, which has the focus from the start on a desktop.
// Not here: keys that mean what has the focus (gallery.js, detail.js, arrange.js).

import { find, focused } from "./core/dom.js";
import { actionOf, capOf, means } from "./core/keymap.js";
import { singleKeysOn } from "./core/singlekeys.js";
import { follow, mayTrain, show, state } from "./core/store.js";
import { toggleTheme } from "./core/theme.js";
import { isCreating, isShown, onView, showView, shownView } from "./core/views.js";
import { copyPrompt, generate, useAsInput, useSettings } from "./create/actions.js";
import { focusPrompt } from "./create/controls.js";
import { openGrid } from "./create/griddialog.js";
import { chooseFile, closeRecipe, isRecipeOpen } from "./create/recipes.js";
import { focusSearch } from "./presets/presets.js";
import { openSavePreset } from "./presets/savepreset.js";
import { isOpen, setOpen } from "./queue/fold.js";
import { isDetailOpen } from "./gallery/detail.js";
import { escapeGallery, pressGallery } from "./gallery/gallery.js";
import { downloadShown, throwShown, toggleFavourite } from "./gallery/shown_actions.js";
import { pressPan } from "./canvas/pan.js";
import { isZoomed, openZoom, stepZoom } from "./canvas/zoom.js";
import { openHelp } from "./system/help.js";

const ACTS = {
  generate: () => generate(),
  prompt: focusPrompt,
  newer: () => stepZoom(-1),
  older: () => stepZoom(1),
  zoom: () => isZoomed() || !(isCreating() || isDetailOpen()) || openZoom(),
  download: downloadShown,
  settings: useSettings,
  input: useAsInput,
  recipe: chooseFile,
  copy: copyPrompt,
  star: toggleFavourite,
  trash: ({ target }) => target.closest?.(RESULTS) && throwShown(), // with no result in hand it means nothing
  save: openSavePreset,
  grid: openGrid,
  search: () => isShown("presets") && focusSearch(), // the gallery has its own
  train: () => mayTrain() && toggleView("train"),
  learn: () => hasDialog() || find("lu-train-form").requestSubmit(), // it takes hours
  gallery: () => toggleView("gallery"),
  presets: () => toggleView("presets"),
  system: () => toggleView("system"),
  theme: toggleTheme,
  help: openHelp,
};

const RESULTS = ".lu-frame, .lu-bar, .lu-film-item, .lu-shot, #lu-detail, #lu-zoom";
const DESKTOP = "(min-width: 820px) and (hover: hover) and (pointer: fine)"; // elsewhere a keyboard would pop up

const toggleView = (name) => showView(isShown(name) ? "create" : name);

export function mountKeys() {
  document.addEventListener("keydown", press);
  onView((name) => name === "create" && welcome());
  if (document.activeElement === document.body) welcome();
  for (const key of document.querySelectorAll("#studio kbd")) key.textContent = key.textContent.split(" ").map(capOf).join(" ");
}

/** Whoever opens Create on a desktop can write at once. */
function welcome() {
  if (isCreating() && matchMedia(DESKTOP).matches && !hasDialog()) focusPrompt();
}

const hasDialog = () => find("studio").querySelector("dialog[open]:not(#lu-zoom)") !== null;

const isLetter = (key) => /^\p{L}$/u.test(key);

/** Whether a single key may be a shortcut here: a letter only of what has the focus. */
const mayAct = (event) => singleKeysOn() && (!isLetter(event.key) || event.target.closest?.(RESULTS));

function press(event) {
  const id = actionOf(event, shownView());
  if (means(event, "generate")) {
    event.preventDefault(); // on the other views too, where it would send a form
    if (id) ACTS[id](event);
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (id === "back") return escape();
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  const isSeeking = event.target.closest?.("video") && event.key.startsWith("Arrow");
  if (isTyping || isSeeking || hasDialog()) return;
  if (isZoomed() && pressPan(event)) {
    event.preventDefault();
    return;
  }
  const isText = event.key.length === 1 && event.key !== " ";
  if (isText && isCreating() && !isZoomed() && !(id && mayAct(event))) return focusPrompt(); // the key is typed there
  if (isText && !mayAct(event)) return;
  if (isShown("gallery") && isZoomed()) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) stepZoom(step);
    return;
  }
  if (isShown("gallery") && pressGallery(event)) {
    event.preventDefault();
    return;
  }
  if (id && ACTS[id]) {
    event.preventDefault();
    ACTS[id](event);
  }
}

/** Text in the search field is a layer of its own, which the browser clears. */
const isSearching = () => {
  const field = focused();
  return field instanceof HTMLInputElement && field.type === "search" && field.value !== "";
};

/** One layer a press; dialogs close by themselves. */
function escape() {
  if (find("studio").querySelector("dialog[open]")) return;
  if (isOpen()) setOpen(false);
  else if (isRecipeOpen()) closeRecipe();
  else if (!isCreating() && isSearching()) return;
  else if (isShown("gallery") && escapeGallery()) return;
  else if (!isCreating()) showView("create");
  else if (focused()?.closest("#lu-controls")) focused().blur();
  else if (state.view.image !== null) show(state.view.jobId);
  else follow();
}
