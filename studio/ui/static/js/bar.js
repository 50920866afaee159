// The bar under the picture: what happens now, or what one can do with the result. One height, so that nothing jumps.

import { el, find, icon, setText } from "./dom.js";
import { schedulerName, seconds, shapeName } from "./format.js";
import { whyNoInput } from "./inputs.js";
import { cancel, copyPrompt, download, downloadGif, reuseSeed, useAsInput, useSettings } from "./make.js";
import { fractionOf, phaseText, progressLine, waitingLine } from "./progress.js";
import { isFocused, modelOf, placeOf, show, state } from "./store.js";

export function drawBar(job, isShown) {
  const bar = find("lu-bar");
  bar.hidden = !isShown;
  if (bar.hidden) return;
  const key = `${job.id} ${job.state} ${state.view.image} ${job.cancel_requested}`;
  if (bar.dataset.key !== key) {
    bar.dataset.key = key;
    bar.replaceChildren(...(job.state === "done" ? barOfResult(job) : barOfWork(job)));
  }
  if (job.state === "done") {
    drawInputAction(bar.querySelector("#lu-use-as-input"), job.outputs[state.view.image ?? 0]);
    return;
  }
  setText(bar.querySelector(".lu-bar-main"), lineOf(job));
  setText(bar.querySelector(".lu-bar-sub"), job.reason || job.recipe.prompt);
  const progress = bar.querySelector(".lu-progress");
  const fraction = job.state === "queued" ? 0 : fractionOf(job);
  progress.setAttribute("aria-valuenow", String(Math.round(100 * fraction)));
  progress.style.setProperty("--done", fraction);
}

function lineOf(job) {
  if (state.connection === "lost")
    return job.state === "queued" ? "Reconnecting…" : `Reconnecting… last seen: ${phaseText(job)}`;
  return job.state === "queued" ? waitingLine(job, placeOf(job)) : progressLine(job);
}

function barOfWork(job) {
  const button = el(
    "button.lu-button",
    { type: "button", id: "lu-cancel", onclick: () => cancel(job) },
    icon("stop"),
    el("span", {}, job.cancel_requested ? "Cancelling…" : "Cancel"),
  );
  button.disabled = Boolean(job.cancel_requested);
  return [
    el(
      "div.lu-progress",
      { role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 },
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
  button.title = refusal || "Use as input  I";
}

function barOfResult(job) {
  const output = job.outputs[state.view.image ?? 0];
  const isOne = job.outputs.length === 1 || isFocused(job);
  const action = (name, label, onclick, { key, id, style = "lu-brief" } = {}) =>
    el(
      `button.lu-button.${style}`,
      { type: "button", id, onclick, "aria-label": label, title: key ? `${label}  ${key}` : label },
      icon(name),
      el("span", {}, label),
    );
  const back =
    job.outputs.length > 1 && isFocused(job) ? [action("grid", "All images", () => show(job.id), { key: "Esc" })] : [];
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
      action("seed", "Reuse seed", reuseSeed),
      action("copy", "Copy prompt", copyPrompt, { key: "C" }),
      ...(isOne && output.kind === "image"
        ? [action("input", "Use as input", useAsInput, { key: "I", id: "lu-use-as-input", style: "lu-long" })]
        : []),
      action("sliders", "Use settings", useSettings, { key: "U", style: "lu-long" }),
      ...(isOne && output.kind === "video" ? [action("download", "GIF", downloadGif, { style: "lu-long" })] : []),
      ...(isOne ? [action("download", "Download", download, { key: "D", style: "lu-long" })] : []),
    ),
  ];
}

function factsOf(job, output, isOne) {
  const { recipe, timings } = job;
  const seeds = isOne ? `Seed ${output.seed}` : `${job.outputs.length} images from seed ${job.outputs[0].seed}`;
  const took = timings?.total_s ?? job.finished_at - job.started_at;
  const facts = [
    seeds,
    seconds(took),
    shapeName(recipe.shape),
    `${recipe.steps} steps`,
    `guidance ${recipe.guidance_scale}`,
    ...(recipe.images.length ? [`${recipe.images.length} input picture${recipe.images.length > 1 ? "s" : ""}`] : []),
    ...(recipe.fps ? [`${recipe.fps} frames a second`] : []),
    schedulerName(recipe.scheduler),
  ];
  if (job.compiles) facts.push(`${job.compiles} program${job.compiles > 1 ? "s" : ""} compiled`);
  facts.push(modelOf(recipe.model)?.title ?? recipe.model);
  return facts.join(" · ");
}
