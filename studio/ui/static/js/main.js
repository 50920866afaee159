// Starts the page: waits until Gradio has put the panels in place, then fills them and keeps them current.

import { drawCanvas, markUnseen, mountCanvas } from "./canvas.js";
import { drawControls, mountControls } from "./controls.js";
import { find } from "./dom.js";
import { drawFilmstrip } from "./filmstrip.js";
import { drawHeader } from "./header.js";
import { mountKeys } from "./keys.js";
import { generate } from "./make.js";
import { drawQueue, mountQueue } from "./queue.js";
import { changed, onChange, shownJob } from "./store.js";
import { connect, onEnd } from "./stream.js";
import { mountTheme } from "./theme.js";
import { toast } from "./toasts.js";
import { drawZoom, isZoomed, mountZoom } from "./zoom.js";

const LAST_PANEL = "lu-toasts"; // panels are rendered in order

function whenPanelsStand(start) {
  if (find(LAST_PANEL)) return start();
  const observer = new MutationObserver(() => {
    if (!find(LAST_PANEL)) return;
    observer.disconnect();
    start();
  });
  observer.observe(document.documentElement, { childList: true, subtree: true });
}

whenPanelsStand(() => {
  mountTheme();
  mountControls(generate);
  mountCanvas();
  mountQueue();
  mountZoom();
  mountKeys();
  onChange(() => {
    drawHeader();
    drawControls();
    drawCanvas();
    drawFilmstrip();
    drawQueue();
    if (isZoomed()) drawZoom();
  });
  onEnd((job) => {
    if (job.state === "done") markUnseen();
    else if (job.state === "cancelled") toast("Cancelled");
    // A failed job's card is on the canvas, unless the next job took its place at once.
    else if (shownJob()?.id !== job.id)
      toast(`${job.error?.title ?? "A job failed"}: ${job.recipe.prompt.slice(0, 60)}`);
  });
  changed();
  connect();
});
