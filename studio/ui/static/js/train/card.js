// One training as a card: its progress, its curve, its samples, and buttons for what can be done with it now.
// Not here: which trainings there are (trainings.js), what the buttons do (actions.js), progress in words (core/progress.js).

import { at } from "../core/api.js";
import { el, icon, keyed, setIcon, setStyles, setText } from "../core/dom.js";
import { ago, costText, hasPrice, tookText } from "../core/format.js";
import { fractionOf, pausingText, progressLine, waitingLine } from "../core/progress.js";
import { isFinal, makesVideo, modelOf, placeOf } from "../core/store.js";
import { t, together } from "../core/text.js";
import { said, saidList } from "../core/translate_server.js";
import { drawCurve } from "./curve.js";
import { numbersText } from "./form.js";
import { countText } from "./pictures.js";
import { openSample } from "./sample.js";

const MAX_SHOWN = 24; // samples of one training

export function createCard({ id, name }) {
  return el(
    "article.lu-training",
    { "aria-labelledby": `lu-training-${id}` },
    el(
      "div.lu-training-head",
      {},
      el("div.lu-training-words", {}, el("h3", { id: `lu-training-${id}`, tabindex: -1 }, name), el("p.lu-training-facts.lu-num", {})),
      el("div.lu-training-actions", {}),
    ),
    el("p.lu-training-state.lu-num", {}),
    el("div.lu-training-bar", { "aria-hidden": "true" }, el("i", {})),
    el("div.lu-training-body", {}, el("div.lu-training-curve", { hidden: true }), el("div.lu-training-samples", { hidden: true })),
  );
}

/** @param {import("./actions.js").Action[]} actions */
export function updateCard(card, training, job, actions) {
  card.dataset.state = job.state;
  setText(card.querySelector(".lu-training-facts"), factsOf(training));
  setText(card.querySelector(".lu-training-state"), stateText(training, job));
  const bar = card.querySelector(".lu-training-bar");
  bar.hidden = !["running", "paused"].includes(job.state);
  setStyles(bar, { "--done": Math.max(job.state === "running" ? fractionOf(job) : 0, training.saved_step / job.steps) });
  drawActions(card.querySelector(".lu-training-actions"), training, actions);
  const [curve, samples] = card.querySelector(".lu-training-body").children;
  drawPoints(curve, training, job);
  drawSamples(samples, training);
  card.querySelector(".lu-training-body").hidden = curve.hidden && samples.hidden;
}

function factsOf(training) {
  const { model, pictures_count: count, clips_count: clips, numbers, trigger } = training;
  const word = trigger && t("train.word", { word: trigger });
  return [modelOf(model)?.title ?? model, countText(count, clips), word, numbersText(numbers)].filter(Boolean).join(" · ");
}

function stateText(training, job) {
  const when = job.finished_at ? ago(job.finished_at, Date.now() / 1000) : "";
  const cost = hasPrice(job) ? costText(job) : "";
  const saved = training.saved_step ? t("train.saved", { step: training.saved_step, steps: job.steps }) : "";
  if (job.state === "running") return training.pause_requested ? pausingText(job) : progressLine(job);
  if (job.state === "queued") return [waitingLine(job, placeOf(job)), saved].filter(Boolean).join(" · ");
  const notes = saidList(job, "notes");
  if (job.state === "done") return [t("state.done"), tookText(job), cost, when, ...notes].filter(Boolean).join(" · ");
  const why = job.error ? together(said(job.error, "detail"), said(job.error, "advice")) : "";
  return [t(`state.${job.state}`), saved, when, why, ...notes].filter(Boolean).join(" · ");
}

function drawActions(place, { name: training }, actions) {
  keyed(place, actions, {
    key: ({ key }) => key,
    create: ({ href, isBrief, name, label }) =>
      el(
        `${href ? "a" : "button"}${isBrief ? ".lu-icon-button" : ".lu-button"}`,
        { type: href ? null : "button", href, download: href ? "" : null, title: isBrief ? label : null },
        icon(name),
        isBrief ? null : el("span", {}, label),
      ),
    update: (button, { name, label, isAccent, isBusy, act }) => {
      setIcon(button, name);
      const words = button.querySelector("span");
      if (words) setText(words, label);
      button.classList.toggle("lu-accent", Boolean(isAccent));
      button.setAttribute("aria-label", t("common.named", { name: label, value: training }));
      button.setAttribute("aria-disabled", String(Boolean(isBusy)));
      if (act) button.onclick = act;
    },
  });
}

function drawPoints(place, training, job) {
  if (!training.points) return;
  const key = `${training.points.length} ${training.points.at(-1)?.step ?? ""}`;
  place.hidden = !training.points.length && (isFinal(job) || job.state === "queued");
  if (place.dataset.points === key) return;
  place.dataset.points = key;
  place.replaceChildren(drawCurve(training.points, job.steps));
}

/** The newest first: that is what people wait for. */
function drawSamples(place, { samples, name, model }) {
  if (!samples) return;
  place.hidden = !samples.length;
  if (!samples.length) return place.replaceChildren(); // of one that begins anew
  if (!place.firstElementChild)
    place.append(el("ul.lu-training-strip.lu-scroll", { role: "list", tabindex: 0, "aria-label": t("train.samplesOf", { name }) }));
  const shown = [...samples].sort((a, b) => b.step - a.step || a.number - b.number).slice(0, MAX_SHOWN);
  const isVideo = makesVideo(modelOf(model));
  const hasSeveral = shown.some(({ prompt }) => prompt !== shown[0].prompt);
  keyed(place.firstElementChild, shown, {
    key: ({ step, number }) => `${step}-${number}`,
    create: createSample,
    update: (item, sample) => {
      item.querySelector("button").onclick = () => openSample(shown, sample, { isVideo });
      setText(item.querySelector(".lu-training-prompt"), hasSeveral ? ` · ${sample.prompt}` : "");
    },
  });
}

/** Its prompt is shown where there is more than one. */
function createSample({ url, step, prompt, width, height }) {
  return el(
    "li",
    {},
    el(
      "figure",
      {},
      el(
        "button",
        { type: "button", "aria-label": t("train.enlarge", { step, prompt }) },
        el("img", { src: at(url), alt: "", width, height, loading: "lazy", decoding: "async" }),
      ),
      el("figcaption.lu-num", {}, t("train.atStep", { step }), el("span.lu-training-prompt", { title: prompt })),
    ),
  );
}
