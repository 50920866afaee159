// Starts the page: waits until Gradio has put the panels in place, then fills them and keeps them current.

import "./core/translate.js"; // first: the panels are in the visitor's language before anything reads or writes them
import { mountLanguage } from "./core/language.js";
import { whenPanelsStand } from "./core/panels.js";
import { changed, onChange, shownJob, state } from "./core/store.js";
import { connect, onEnd, onGap, onGrid, onOutputs, onTraining, onTrainingChange } from "./core/stream.js";
import { t, together } from "./core/text.js";
import { mountTheme } from "./core/theme.js";
import { toast } from "./core/toasts.js";
import { said } from "./core/translate_server.js";
import { mountViews, onView } from "./core/views.js";
import { generate } from "./create/actions.js";
import { drawControls, mountControls } from "./create/controls.js";
import { noteDrawn, takeWanted } from "./create/early.js";
import { drawEdit, mountEdit } from "./create/edit.js";
import { mountGridDialog } from "./create/griddialog.js";
import { mountLoraFile } from "./create/lorafile.js";
import { loadLoras } from "./create/loras.js";
import { mountOrigin, openLink } from "./create/origin.js";
import { mountRecipes } from "./create/recipes.js";
import { loadStyles } from "./create/styles.js";
import { mountPresets, openPresets } from "./presets/presets.js";
import { mountSavePreset } from "./presets/savepreset.js";
import { mountShare } from "./presets/share.js";
import { noteEnd } from "./queue/notify.js";
import { drawQueue, mountQueue } from "./queue/queue.js";
import { nameOf } from "./queue/titles.js";
import { mountWebhook } from "./queue/webhook.js";
import { lookAtTraining, mountTrain, openTrain } from "./train/train.js";
import { drawTrainings, hearTraining, noteTraining, noteTrainingEnd, noteTrainingGap } from "./train/trainings.js";
import { mountGallery, noteDone, noteGap, noteMade, noteOutputs, openGallery, openOutput } from "./gallery/gallery.js";
import { drawCanvas, markUnseen, mountCanvas } from "./canvas/canvas.js";
import { drawEphemeral, mountEphemeral } from "./canvas/ephemeral.js";
import { drawFilmstrip } from "./canvas/filmstrip.js";
import { drawZoom, isZoomed, mountZoom } from "./canvas/zoom.js";
import { mountAccount } from "./system/account.js";
import { drawHeader } from "./system/header.js";
import { mountHelp } from "./system/help.js";
import { drawMe, mountMe } from "./system/me.js";
import { mountMore } from "./system/more.js";
import { mountSystem } from "./system/system.js";
import { mountFiles } from "./files.js";
import { mountKeys } from "./keys.js";

whenPanelsStand(() => {
  document.getElementById("lu-first")?.remove(); // studio/ui/first_paint.py
  mountTheme();
  mountLanguage();
  mountMe();
  mountMore();
  mountAccount();
  mountViews();
  mountControls(generate);
  mountLoraFile();
  mountRecipes();
  mountFiles();
  mountCanvas();
  mountEphemeral();
  mountQueue(lookAtTraining);
  mountEdit();
  mountWebhook();
  mountZoom();
  mountOrigin();
  mountTrain();
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
    drawTrainings();
    if (isZoomed()) drawZoom();
    openOnce();
  });
  onTraining(hearTraining);
  onTrainingChange(noteTraining);
  onEnd((job) => {
    if (job.state === "done") {
      noteDone(job);
      markUnseen();
    }
    if (job.kind === "train") noteTrainingEnd(job);
    else if (job.state === "cancelled") {
      if (job.started_at) toast(t("state.cancelled")); // one that waited leaves the line before everybody's eyes
    }
    // A failed job's card is on the canvas, unless the next job took its place at once.
    else if (job.state !== "done" && shownJob()?.id !== job.id)
      toast(t("toast.failed", { title: said(job.error, "title") || t("notify.failed"), prompt: nameOf(job).slice(0, 60) }));
    if (job.state !== "paused") noteEnd(job);
  });
  onGap(() => {
    noteGap();
    noteTrainingGap();
    loadLoras().catch(() => undefined); // the stream notices a lost server
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
  noteDrawn();
  openPresets();
  openGallery();
  openTrain();
  const styles = loadStyles().then(changed, () => undefined); // without them there is only "Style: none"
  await Promise.all([styles, loadLoras().catch(() => undefined)]);
  onView((name) => name === "create" && loadLoras().catch(() => undefined));
  addEventListener("focus", () => loadLoras().catch(() => undefined)); // others' trainings, and files put there by hand
  await openLink();
  if (takeWanted()) generate();
}
