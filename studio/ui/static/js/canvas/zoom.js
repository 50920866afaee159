// The picture as large as the window.

import { at } from "../core/api.js";
import { el, find } from "../core/dom.js";
import { shownJob, shownOutput, stepView } from "../core/store.js";
import { t } from "../core/text.js";
import { videoOf } from "../core/video.js";
import { detailOutput, isDetailOpen, turn } from "../gallery/detail.js";
import { mountPan, panPicture, wasDragged } from "./pan.js";

export const isZoomed = () => find("lu-zoom").open;

/** What is enlarged: the gallery's output that stands alone, or what stands on the canvas. */
const shown = () => (isDetailOpen() ? detailOutput() : shownOutput());
const recipeOf = (output) => output.recipe ?? shownJob().recipe;

export function mountZoom() {
  const dialog = find("lu-zoom");
  mountPan(dialog, find("lu-zoom-whole"));
  find("lu-detail-stage").addEventListener("click", (event) => event.target.closest("[data-enlarge]") && openZoom());
  dialog.addEventListener("close", () => pause(dialog));
  dialog.addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]");
    if (step) stepZoom(Number(step.dataset.step));
    else if (!event.target.closest("video, #lu-zoom-whole") && !(isPlace(event.target) && wasDragged())) dialog.close(); // a video has controls
  });
}

/** Where people drag, and not a button. */
const isPlace = (target) => target === find("lu-zoom") || target.localName === "img";

/** A video goes on where nobody sees it unless it is told to stop. */
const pause = (dialog) => dialog.querySelector("video")?.pause();

/** To the older or, with -1, to the newer one of what is enlarged. */
export const stepZoom = (step) => (isDetailOpen() ? turn(step).then(drawZoom) : stepView(step));

export function openZoom() {
  if (!shown()) return;
  drawZoom();
  find("lu-zoom").showModal();
  panPicture(find("lu-zoom").querySelector("img, video"));
  const video = find("lu-zoom").querySelector("video");
  if (video?.autoplay) video.play().catch(() => {}); // closed before it began
}

export function drawZoom() {
  const output = shown();
  const dialog = find("lu-zoom");
  if (!output) return dialog.open && dialog.close();
  dialog.setAttribute("aria-label", t(output.kind === "video" ? "canvas.enlargedVideo" : "canvas.enlarged"));
  const image = mediaOf(dialog, output);
  const ratio = output.width / output.height;
  image.style.setProperty("--ratio", ratio);
  const isNew = image.dataset.output !== output.id;
  image.dataset.output = output.id;
  image.style.setProperty("--zoom-width", `min(calc(100vw - var(--zoom-side)), calc(92dvh * ${ratio}))`);
  if (isNew) panPicture(image);
}

/** The dialog's one picture or video, exchanged only when another output is shown. */
function mediaOf(dialog, output) {
  const before = dialog.querySelector("img, video");
  if (before.getAttribute("src") === at(output.url)) return before;
  const recipe = recipeOf(output);
  const media =
    output.kind === "video"
      ? videoOf(output, { recipe }, { controls: true })
      : el("img", { src: at(output.url), alt: recipe.prompt });
  before.replaceWith(media);
  return media;
}
