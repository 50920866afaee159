// The centre: nothing yet, pictures (live or finished), or a notice (the bar below is bar.js).

import { at } from "../core/api.js";
import { el, find, icon, keyed, setStyles, setText } from "../core/dom.js";
import { MAX_SCALE, framesIn, percent, ratioOf, shapeName } from "../core/format.js";
import { fractionOf, phaseName, phaseText, timeText } from "../core/progress.js";
import { changed, dismiss, isFinal, isFocused, placeOf, runningJob, show, shownJob, state } from "../core/store.js";
import { t } from "../core/text.js";
import { videoOf } from "../core/video.js";
import { retry, useSettings } from "../create/actions.js";
import { drawBar } from "./bar.js";
import { drawLacking } from "./lacking.js";
import { openZoom } from "./zoom.js";

const GAP_PX = 12;
const SMALL_PX = 512; // the longer side of what is framed as a postcard
const TICK_MS = 500;
const PREVIEW_FRAMES = 4; // of a video, side by side (studio/worker/progress.py)

let ticker = 0;
let said = "";

export function mountCanvas() {
  new ResizeObserver(() => drawFrames(shownJob())).observe(find("lu-view"));
}

export function drawCanvas() {
  const job = shownJob();
  const shows = !job ? "nothing" : isFinal(job) && job.state !== "done" ? "notice" : "frames";
  find("lu-view").dataset.shows = shows;
  find("lu-empty").hidden = shows !== "nothing" || !state.isLoaded;
  find("lu-frames").hidden = shows !== "frames";
  find("lu-notice").hidden = shows !== "notice";
  if (shows === "frames") drawFrames(job);
  else find("lu-frames").replaceChildren(); // a retried job keeps its id, but not its last preview
  if (shows === "notice") drawNotice(job);
  drawLacking(shows === "frames" ? job : null);
  drawBar(job, shows === "frames");
  announce(job);
  document.title = titleOf();
  tick(job);
}

/** Countdowns move between events, and only while something runs or waits and the server is there. */
function tick(job) {
  clearTimeout(ticker);
  if (job && !isFinal(job) && state.connection !== "lost") ticker = setTimeout(changed, TICK_MS);
}

// Pictures

function drawFrames(job) {
  const frames = find("lu-frames");
  if (!job || frames.hidden) return;
  const items = framesOf(job);
  frames.dataset.many = String(items.length > 1);
  const [width, height] = job.recipe.shape.split("x").map(Number);
  frames.dataset.postcards = String(Math.max(width, height) <= SMALL_PX);
  fit(frames, items.length, ratioOf(job.recipe.shape), width);
  keyed(frames, items, {
    key: (item) => `${item.job.id}-${item.job.created_at}-${item.index}${isPlayer(item) ? "-player" : ""}`,
    create: (item) => (isPlayer(item) ? createPlayer(item) : createFrame(item)),
    update: updateFrame,
  });
}

/** One frame an image from the start, so that nothing jumps when previews turn into results. */
function framesOf(job) {
  const count = job.state === "done" ? job.outputs.length : job.recipe.batch_size || 1;
  const all = Array.from({ length: count }, (_, index) => ({
    job,
    index,
    count,
    output: job.state === "done" ? job.outputs[index] : null,
  }));
  return isFocused(job) ? [all[state.view.image] ?? all[0]] : all;
}

/** The widest frames that fit: tries every number of columns. */
function fit(frames, count, ratio, natural_px) {
  const view = find("lu-view");
  view.style.setProperty("--shown-ratio", count === 1 ? ratio : 1); // a phone gives the picture its own height
  const style = getComputedStyle(view);
  const width = view.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const height = view.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
  const border = getComputedStyle(frames);
  const [beside, above] = ["--beside", "--above"].map((name) => parseFloat(border.getPropertyValue(name)));
  let best = { columns: 1, size: 0 };
  for (let columns = 1; columns <= count; columns += 1) {
    const rows = Math.ceil(count / columns);
    const size = Math.min(
      (width - GAP_PX * (columns - 1)) / columns - beside,
      ((height - GAP_PX * (rows - 1)) / rows - above) * ratio,
    );
    if (size > best.size) best = { columns, size };
  }
  const size = Math.floor(Math.min(best.size, natural_px * MAX_SCALE));
  setStyles(frames, { "--columns": best.columns, "--frame-width": `${size}px`, "--ratio": ratio });
}

/** A video that stands alone has controls, so its frame is no button. */
const isPlayer = ({ job, output, count }) => output?.kind === "video" && (count === 1 || isFocused(job));

function createPlayer({ job, output }) {
  return el(
    "div.lu-frame",
    {},
    el("span.lu-frame-media", {}, videoOf(output, job, { controls: true })),
    el(
      "button.lu-icon-button.lu-frame-zoom",
      { type: "button", onclick: openZoom, title: t("canvas.enlarge"), "aria-label": t("canvas.enlarge") },
      icon("expand"),
    ),
    caption(),
  );
}

const caption = () => el("span.lu-frame-caption", { "aria-hidden": "true" }, el("span"), " ", el("span.lu-num"));

function createFrame({ job, index }) {
  const open = () => (shownJob().outputs.length > 1 && state.view.image === null ? show(job.id, index) : openZoom());
  return el(
    "button.lu-frame",
    { type: "button", onclick: open },
    el("span.lu-frame-media", {}, el("span.lu-frame-wait")),
    " ", // words of two parts do not run into one
    caption(),
  );
}

function updateFrame(frame, item) {
  const { job, output, index, count } = item;
  const [title, size] = frame.lastElementChild.children;
  setText(title, job.recipe.prompt);
  setText(size, shapeName(job.recipe.shape, job.recipe.fps));
  if (isPlayer(item)) return;
  frame.dataset.live = String(!output);
  frame.disabled = !output;
  if (output) drawResult(frame, item);
  else if (job.preview_url) drawPreview(frame, item);
  else drawWait(frame.querySelector(".lu-frame-wait"), job, index);
  frame.dataset.action = !output
    ? t(framesIn(job.recipe.shape) > 1 ? "canvas.makingVideo" : "canvas.making")
    : count > 1 && !isFocused(job)
      ? t(output.kind === "video" ? "canvas.showAloneVideo" : "canvas.showAlone", { place: index + 1, total: count })
      : t("canvas.enlarge");
  nameFrame(frame);
}

/** What stands on it is in its name too, for people who say what they see. */
function nameFrame(frame) {
  const { action } = frame.dataset;
  const seen = [...frame.querySelectorAll("b, span")].filter((one) => !one.childElementCount && one.textContent);
  const text = seen.map((one) => one.textContent).join(" ");
  frame.setAttribute("aria-label", text ? t("common.named", { name: action, value: text }) : action);
}

/** The result takes the preview's place when it has arrived, never before. */
function drawResult(frame, { job, output }) {
  const url = at(output.url);
  if (frame.dataset.url === url) return;
  frame.dataset.url = url;
  if (output.kind === "video") return frame.firstElementChild.replaceChildren(videoOf(output, job));
  const image = el("img.lu-result", { alt: job.recipe.prompt, decoding: "async" });
  image.onload = () => {
    frame.firstElementChild.replaceChildren(image);
    nameFrame(frame);
  };
  image.src = url;
}

/** A batch's preview is one contact sheet; each frame shows its own cell. */
function drawPreview(frame, { job, index, count }) {
  if (frame.dataset.url === job.preview_url) return;
  frame.dataset.url = job.preview_url;
  const columns = Math.ceil(Math.sqrt(count));
  const rows = Math.ceil(count / columns);
  const frames = framesIn(job.recipe.shape) > 1 ? PREVIEW_FRAMES : 1;
  const image = el("img.lu-preview", {
    alt: t("canvas.preview"),
    style: {
      width: `${100 * columns * frames}%`,
      height: `${100 * rows}%`,
      left: `${-100 * frames * (index % columns)}%`,
      top: `${-100 * Math.floor(index / columns)}%`,
      "--strip": `${-100 / columns}%`,
    },
  });
  if (frames > 1) image.dataset.plays = "true";
  // Only a preview that arrived replaces the last one; one that is gone (the job just ended) changes nothing.
  image.onload = () => {
    if (frame.dataset.url !== job.preview_url) return;
    const live = index === 0 ? [el("span.lu-frame-live", {}, t("canvas.live"))] : [];
    frame.firstElementChild.replaceChildren(image, ...live);
    nameFrame(frame);
  };
  image.src = job.preview_url;
}

function drawWait(wait, job, index) {
  if (!wait || index > 0) return;
  const big = job.state === "queued" ? `#${placeOf(job)}` : timeText(job);
  const isLost = state.connection === "lost";
  const text = isLost ? t("engine.reconnecting") : job.state === "queued" ? t("canvas.inLine") : phaseText(job);
  if (wait.textContent !== `${big} ${text}`) wait.replaceChildren(el("b", {}, big), " ", el("span", {}, text));
}

// Notices

const NOTICES = {
  failed: { tone: "bad", mark: "alert", title: t("canvas.failed") },
  interrupted: { tone: "bad", mark: "pause", title: t("state.interrupted") },
  cancelled: { tone: "calm", mark: "stop", title: t("state.cancelled") },
};

function drawNotice(job) {
  const notice = find("lu-notice");
  const key = `${job.id} ${job.state} ${job.finished_at}`;
  if (notice.dataset.key === key) return;
  notice.dataset.key = key;
  const { tone, mark, title } = NOTICES[job.state];
  const error = job.error ?? {};
  notice.dataset.tone = tone;
  notice.replaceChildren(
    el("div.lu-notice-head", {}, el("span.lu-notice-mark", {}, icon(mark)), el("h2", {}, error.title || title)),
    error.detail ? el("p.lu-notice-detail", {}, error.detail) : "",
    error.advice ? el("p.lu-notice-advice", {}, el("b", {}, t("canvas.advice")), " ", error.advice) : "",
    el("p.lu-notice-prompt", {}, job.recipe.prompt),
    el(
      "div.lu-notice-actions",
      {},
      el(
        "button.lu-button.lu-accent",
        { type: "button", onclick: () => retry(job) },
        icon("retry"),
        el("span", {}, t("queue.retry")),
      ),
      el(
        "button.lu-button",
        { type: "button", onclick: useSettings },
        icon("sliders"),
        el("span", {}, t("queue.useSettings")),
      ),
      el("button.lu-button.lu-quiet", { type: "button", onclick: () => dismiss(job) }, t("common.dismiss")),
    ),
  );
}

// For those who do not see the canvas

function announce(job) {
  if (!job) return;
  const words = {
    queued: t("canvas.waiting"),
    running: job.phase === "denoising" ? phaseName(job.phase) : phaseText(job),
  };
  const text = words[job.state] ?? t(`state.${job.state}`);
  const line = `${job.id} ${text}`;
  if (line !== said) {
    said = line;
    setText(find("lu-live"), text);
  }
}

/** Whatever is shown, the tab tells how far the running job is. */
function titleOf() {
  const running = runningJob();
  if (running) return `${percent(fractionOf(running))} · Lumesh`;
  return hasUnseen ? `${t("state.done")} · Lumesh` : "Lumesh";
}

let hasUnseen = false;

/** A result that came while another tab was in front shows in the title until somebody looks. */
export function markUnseen() {
  hasUnseen = document.hidden;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden || !hasUnseen) return;
  hasUnseen = false;
  changed();
});
