// The picture as large as the window.

import { at } from "../core/api.js";
import { el, find } from "../core/dom.js";
import { ratioOf } from "../core/format.js";
import { shownJob, shownOutput, stepView } from "../core/store.js";
import { t } from "../core/text.js";
import { videoOf } from "../core/video.js";

export const isZoomed = () => find("lu-zoom").open;

export function mountZoom() {
  const dialog = find("lu-zoom");
  dialog.addEventListener("close", () => pause(dialog));
  dialog.addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]");
    if (step) stepView(Number(step.dataset.step));
    else if (!event.target.closest("video")) dialog.close(); // its controls are inside
  });
}

/** A video goes on where nobody sees it unless it is told to stop. */
const pause = (dialog) => dialog.querySelector("video")?.pause();

export function openZoom() {
  if (!shownOutput()) return;
  drawZoom();
  find("lu-zoom").showModal();
  const video = find("lu-zoom").querySelector("video");
  if (video?.autoplay) video.play().catch(() => {}); // closed before it began
}

export function drawZoom() {
  const output = shownOutput();
  const dialog = find("lu-zoom");
  if (!output) return dialog.open && dialog.close();
  dialog.setAttribute("aria-label", t(output.kind === "video" ? "canvas.enlargedVideo" : "canvas.enlarged"));
  const image = mediaOf(dialog, output);
  const ratio = ratioOf(shownJob().recipe.shape);
  image.style.setProperty("--ratio", ratio);
  image.style.setProperty("--zoom-width", `min(calc(100vw - var(--zoom-side)), calc(92dvh * ${ratio}))`);
}

/** The dialog's one picture or video, exchanged only when another output is shown. */
function mediaOf(dialog, output) {
  const shown = dialog.querySelector("img, video");
  if (shown.getAttribute("src") === at(output.url)) return shown;
  const job = shownJob();
  const media =
    output.kind === "video"
      ? videoOf(output, job, { controls: true })
      : el("img", { src: at(output.url), alt: job.recipe.prompt });
  shown.replaceWith(media);
  return media;
}
