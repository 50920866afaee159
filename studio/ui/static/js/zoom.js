// The picture as large as the window.

import { at } from "./api.js";
import { find } from "./dom.js";
import { ratioOf } from "./format.js";
import { shownJob, shownOutput, stepView } from "./store.js";

export const isZoomed = () => find("lu-zoom").open;

export function mountZoom() {
  const dialog = find("lu-zoom");
  dialog.addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]");
    if (step) stepView(Number(step.dataset.step));
    else dialog.close();
  });
}

export function openZoom() {
  if (!shownOutput()) return;
  drawZoom();
  find("lu-zoom").showModal();
}

export function drawZoom() {
  const output = shownOutput();
  const dialog = find("lu-zoom");
  if (!output) return dialog.open && dialog.close();
  const image = dialog.querySelector("img");
  if (image.src !== at(output.url)) image.src = at(output.url);
  image.alt = shownJob().recipe.prompt;
  const ratio = ratioOf(shownJob().recipe.shape);
  image.style.setProperty("--ratio", ratio);
  image.style.setProperty("--zoom-width", `min(calc(100vw - var(--zoom-side)), calc(92dvh * ${ratio}))`);
}
