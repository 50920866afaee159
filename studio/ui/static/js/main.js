// Starts the page: waits until Gradio has put the panels in place, then fills them and keeps them current.

import "./translate.js"; // first: the panels are in the visitor's language before anything reads or writes them
import { drawCanvas, markUnseen, mountCanvas } from "./canvas.js";
import { drawControls, mountControls } from "./controls.js";
import { drawEdit, mountEdit } from "./edit.js";
import { mountFiles } from "./files.js";
import { drawEphemeral, mountEphemeral } from "./ephemeral.js";
import { drawFilmstrip } from "./filmstrip.js";
import { mountGallery, noteDone, noteMade, noteOutputs, openGallery, openOutput } from "./gallery.js";
import { drawHeader } from "./header.js";
import { mountHelp } from "./help.js";
import { mountKeys } from "./keys.js";
import { generate } from "./make.js";
import { mountLanguage } from "./language.js";
import { loadLoras } from "./loras.js";
import { drawMe, mountMe } from "./me.js";
import { noteEnd } from "./notify.js";
import { mountOrigin, openLink } from "./origin.js";
import { whenPanelsStand } from "./panels.js";
import { mountPresets, openPresets } from "./presets.js";
import { drawQueue, mountQueue } from "./queue.js";
import { mountRecipes } from "./recipes.js";
import { said } from "./said.js";
import { mountSavePreset } from "./savepreset.js";
import { mountShare } from "./share.js";
import { changed, onChange, shownJob, state } from "./store.js";
import { connect, onEnd, onGrid, onOutputs } from "./stream.js";
import { loadStyles } from "./styles.js";
import { mountSystem } from "./system.js";
import { t, together } from "./text.js";
import { mountTheme } from "./theme.js";
import { toast } from "./toasts.js";
import { mountViews, onView } from "./views.js";
import { mountWebhook } from "./webhook.js";
import { mountGridDialog } from "./xyz.js";
import { drawZoom, isZoomed, mountZoom } from "./zoom.js";

whenPanelsStand(() => {
  mountTheme();
  mountLanguage();
  mountMe();
  mountViews();
  mountControls(generate);
  mountRecipes();
  mountFiles();
  mountCanvas();
  mountEphemeral();
  mountQueue();
  mountEdit();
  mountWebhook();
  mountZoom();
  mountOrigin();
  mountGallery();
  mountPresets();
  mountSavePreset();
  mountShare();
  mountGridDialog();
  mountSystem();
  mountHelp();
  mountKeys();
  onChange(() => {
    drawHeader();
    drawMe();
    drawControls();
    drawCanvas();
    drawEphemeral();
    drawFilmstrip();
    drawEdit();
    drawQueue();
    if (isZoomed()) drawZoom();
    openOnce();
  });
  onEnd((job) => {
    if (job.state === "done") noteDone(job);
    if (job.state === "done") markUnseen();
    else if (job.state === "cancelled") {
      if (job.started_at) toast(t("state.cancelled")); // one that waited leaves the line before everybody's eyes
    }
    // A failed job's card is on the canvas, unless the next job took its place at once.
    else if (shownJob()?.id !== job.id)
      toast(t("toast.failed", { title: said(job.error?.title) ?? t("notify.failed"), prompt: job.recipe.prompt.slice(0, 60) }));
    noteEnd(job);
  });
  onGrid(({ output, cells, missing }) => {
    if (!output) return;
    noteMade(1);
    const lacks = missing ? t("grid.missing", { count: missing, cells }) : "";
    toast(together(t("grid.ready"), lacks), { label: t("grid.show"), act: () => openOutput(output.id) });
  });
  changed();
  onOutputs(noteOutputs);
  connect();
});

let isOpen = false;

/** Once, when the models are known: styles, presets and a link's settings are about them. */
async function openOnce() {
  if (isOpen || !state.models.length) return;
  isOpen = true;
  openPresets();
  openGallery();
  const styles = loadStyles().then(changed, () => undefined); // without them there is only "No style"
  await Promise.all([styles, loadLoras().catch(() => undefined)]);
  onView((name) => name === "create" && loadLoras().catch(() => undefined));
  await openLink();
}
