// The bar under the picture: what happens now, or what one can do with the result. One height, so that nothing jumps.

import { axisText } from "../core/axes.js";
import { el, find, icon, setText } from "../core/dom.js";
import { costText, hasPrice, schedulerName, seconds, shapeName, swapParts, tookText } from "../core/format.js";
import { fractionOf, phaseText, progressLine, waitingLine } from "../core/progress.js";
import { PAUSED, isFocused, modelOf, placeOf, show, state } from "../core/store.js";
import { t } from "../core/text.js";
import { saidList } from "../core/translate_server.js";
import { cancel, copyPrompt, downloadAs, reuseSeed, useAsInput, useSettings } from "../create/actions.js";
import { whyNoInput } from "../create/inputs.js";
import { isLacking } from "./lacking.js";
import { openSavePreset } from "../presets/savepreset.js";
import { compareShown, downloadShown, isShownMarked, shownPair, throwShown, toggleFavourite } from "../gallery/shown_actions.js";

export function drawBar(job, isShown) {
  const bar = find("lu-bar");
  bar.hidden = !isShown;
  if (bar.hidden) return;
  const key = [job.id, job.state, state.view.image, job.cancel_requested, notesOf(job).length, ...(job.outputs ?? []).map(({ id }) => id)].join(" ");
  if (bar.dataset.key !== key) {
    bar.dataset.key = key;
    bar.replaceChildren(...(job.state === "done" ? barOfResult(job) : barOfWork(job)));
  }
  if (job.state === "done") {
    const output = job.outputs[state.view.image ?? 0];
    drawInputAction(bar.querySelector("#lu-use-as-input"), output);
    bar.querySelector("#lu-favourite").setAttribute("aria-pressed", String(isShownMarked()));
    bar.querySelector("#lu-compare-shown").hidden = !shownPair();
    return;
  }
  setText(bar.querySelector(".lu-bar-main"), lineOf(job));
  setText(bar.querySelector(".lu-bar-sub"), (job.reason !== PAUSED && job.reason) || job.recipe.prompt);
  const progress = bar.querySelector(".lu-progress");
  const fraction = job.state === "queued" ? 0 : fractionOf(job);
  progress.setAttribute("aria-valuenow", String(Math.round(100 * fraction)));
  progress.style.setProperty("--done", fraction);
}

function lineOf(job) {
  if (state.connection === "lost")
    return job.state === "queued" ? t("engine.reconnecting") : t("bar.lastSeen", { phase: phaseText(job) });
  return job.state === "queued" ? waitingLine(job, placeOf(job)) : progressLine(job);
}

function barOfWork(job) {
  const button = el(
    "button.lu-button",
    { type: "button", id: "lu-cancel", onclick: () => cancel(job) },
    icon("stop"),
    el("span", {}, t(job.cancel_requested ? "bar.cancelling" : "common.cancel")),
  );
  button.disabled = Boolean(job.cancel_requested);
  return [
    el(
      "div.lu-progress",
      { role: "progressbar", "aria-label": t("bar.progress"), "aria-valuemin": 0, "aria-valuemax": 100 },
      el("i"),
    ),
    el("div.lu-bar-text", {}, el("p.lu-bar-main.lu-num", { id: "lu-phase" }), el("p.lu-bar-sub")),
    el("div.lu-bar-actions", {}, button),
  ];
}

/** It stays focusable when it cannot act, so that everybody can find out why. */
function drawInputAction(button, output) {
  if (!button) return;
  const refusal = whyNoInput(output);
  button.setAttribute("aria-disabled", String(Boolean(refusal)));
  button.title = refusal || `${t("bar.input")}  I`;
}

function barOfResult(job) {
  const output = job.outputs[state.view.image ?? 0];
  const isOne = job.outputs.length === 1 || isFocused(job);
  const action = (name, label, onclick, { key = "", id = null, style = "lu-long", hint = label } = {}) =>
    el(
      `button.lu-button.${style}`,
      { type: "button", id, onclick, "aria-label": label, title: key ? `${hint}  ${key}` : hint },
      icon(name),
      el("span", {}, label),
    );
  const back =
    job.outputs.length > 1 && isFocused(job) ? [action("grid", t(output.kind === "video" ? "bar.allVideo" : "bar.all"), () => show(job.id), { key: "Esc" })] : [];
  return [
    el(
      "div.lu-bar-text",
      {},
      el("p.lu-bar-main", { title: job.recipe.prompt }, job.recipe.prompt),
      el("p.lu-bar-sub.lu-num", { title: factsOf(job, output, isOne) }, factsOf(job, output, isOne)),
    ),
    el(
      "div.lu-bar-actions",
      {},
      ...back,
      action("download", t(isOne ? "bar.download" : "bar.downloadAll"), downloadShown, { key: "D" }),
      ...(isOne && output.kind === "video"
        ? [action("download", "GIF", () => downloadAs("gif")), action("download", "WebP", () => downloadAs("webp"))]
        : []),
      job.sheet
        ? action("grid", t("detail.useGrid"), useSettings, { key: "U" })
        : action("sliders", t("bar.settings"), useSettings, { key: "U" }),
      action("seed", t("bar.reuseSeed"), reuseSeed),
      ...(isOne && output.kind === "image"
        ? [action("input", t("bar.input"), useAsInput, { key: "I", id: "lu-use-as-input" })]
        : []),
      action("star", t("gallery.favourite"), toggleFavourite, { key: "F", id: "lu-favourite" }),
      action("compare", t("compare.title"), compareShown, { id: "lu-compare-shown", hint: t("bar.compareHint") }),
      action("trash", t("trash.throw"), throwShown, { key: "Del", id: "lu-throw-shown" }),
      action("copy", t("bar.copy"), copyPrompt, { key: "C", style: "lu-brief" }),
      ...(isOne && !job.sheet
        ? [action("bookmark", t("bar.preset"), openSavePreset, { key: "P", id: "lu-save-preset", style: "lu-brief", hint: t("preset.save") })]
        : []),
    ),
  ];
}

/** Of one of its outputs, or of the whole job; what failed attempts cost before is part of it. */
const costOf = ({ chip_seconds, cost_usd }, count) => ({
  chip_seconds: chip_seconds / count,
  cost_usd: cost_usd / count,
});

/** But the words that its model does not know, which stand above the picture. */
const notesOf = (job) => saidList(job, "notes").filter((_, place) => !isLacking(job.notes[place]));

/** How a sheet was made: along which axes, and what its cells share. */
const factsOfSheet = ({ grid, recipe, seed }) =>
  [
    modelOf(recipe.model)?.title ?? recipe.model,
    ...[grid.x, grid.y, grid.z].map(axisText).filter(Boolean),
    shapeName(recipe.shape),
    t("bar.seed", { seed: String(seed) }),
  ].join(" · ");

function factsOf(job, output, isOne) {
  if (job.sheet) return factsOfSheet(job.sheet);
  const { recipe, timings } = job;
  const guidance = [recipe.guidance_scale, recipe.guidance_scale_2].filter((scale) => scale !== null);
  const facts = [
    ...notesOf(job), // what of the prompt was not followed comes first
    modelOf(recipe.model)?.title ?? recipe.model,
    shapeName(recipe.shape, recipe.fps),
    t("bar.steps", { count: recipe.steps }),
    isOne
      ? t("bar.seed", { seed: String(output.seed) })
      : t(output.kind === "video" ? "bar.seedsFromVideo" : "bar.seedsFrom", { count: job.outputs.length, seed: String(job.outputs[0].seed) }),
    tookText(job) || seconds(job.finished_at - job.started_at),
    ...(hasPrice(job) ? [costText(costOf(job, isOne ? recipe.batch_size : 1))] : []),
    t("bar.guidance", { scale: guidance.join(t("bar.then")) }),
    ...(recipe.images.length ? [t("bar.inputs", { count: recipe.images.length })] : []),
    ...(recipe.strength === null ? [] : [t("bar.strength", { strength: recipe.strength })]),
    ...(recipe.fps ? [t("bar.fps", { count: recipe.fps })] : []),
    schedulerName(recipe.scheduler),
  ];
  if (job.compiles) facts.push(t("bar.compiled", { count: job.compiles }));
  if (timings?.swap) facts.push(t("swap.took", { time: seconds(timings.swap.total_s), parts: swapParts(timings.swap) }));
  return facts.join(" · ");
}
