// What runs, what waits and why, and what ended lately; folded behind the header's button on narrow screens.

import { at } from "./api.js";
import { el, find, icon, keyed, setText } from "./dom.js";
import { ago, framesIn, seconds, wholeSeconds } from "./format.js";
import { cancel, retry } from "./make.js";
import { fractionOf, secondsLeft, shortLine } from "./progress.js";
import { endedJobs, follow, isFinal, runningJob, show, shownJob, waitingJobs } from "./store.js";

const MAX_ENDED = 12;

export function mountQueue() {
  const toggle = find("lu-queue-toggle");
  toggle.addEventListener("click", () => setOpen(find("lu-queue").dataset.open !== "true"));
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest?.("#lu-queue, #lu-queue-toggle")) setOpen(false);
  });
  setInterval(() => document.hidden || drawQueue(), 30_000); // "3 min ago" grows older without events
}

export function setOpen(isOpen) {
  find("lu-queue").dataset.open = String(isOpen);
  find("lu-queue-toggle").setAttribute("aria-expanded", String(isOpen));
}

export const isOpen = () => find("lu-queue").dataset.open === "true";

export function drawQueue() {
  const running = runningJob();
  const waiting = waitingJobs();
  const ended = endedJobs().slice(0, MAX_ENDED);
  const active = waiting.length + (running ? 1 : 0);
  setText(find("lu-queue-total"), totalOf(waiting));
  setText(find("lu-queue-badge"), String(active));
  find("lu-queue-badge").hidden = active === 0;
  const shown = shownJob();
  const rows = [
    ...(active ? [] : [{ key: "empty", note: "Nothing is waiting. Jobs go on when this page is closed." }]),
    ...(running
      ? [
          { key: "now", title: "Now" },
          { key: running.id, job: running },
        ]
      : []),
    ...(waiting.length ? [{ key: "next", title: "Next" }] : []),
    ...waiting.map((job, index) => ({ key: job.id, job, place: index + 1 })),
    ...(ended.length ? [{ key: "recent", title: "Recent" }] : []),
    ...ended.map((job) => ({ key: job.id, job })),
  ];
  keyed(find("lu-queue-list"), rows, {
    key: (row) => (row.job ? `${row.job.id}-${row.job.state}` : row.key),
    create: (row) =>
      row.job
        ? createItem(row.job)
        : el(row.title ? "h3.lu-queue-group" : "p.lu-queue-empty", {}, row.title ?? row.note),
    update: (element, row) => row.job && updateItem(element, row, shown),
  });
}

function totalOf(waiting) {
  if (!waiting.length) return "";
  const last = secondsLeft(waiting.at(-1));
  return last === null ? `${waiting.length} waiting` : `${waiting.length} waiting · ${wholeSeconds(last)}`;
}

function createItem(job) {
  const isEnded = isFinal(job);
  const canRetry = isEnded && job.state !== "done";
  const action = canRetry
    ? ["retry", "Retry", () => retry(job)]
    : isEnded
      ? null
      : ["close", "Cancel", () => cancel(job)];
  return el(
    "div.lu-queue-item",
    { data: { state: job.state } },
    el("button.lu-queue-open", {
      type: "button",
      "aria-label": job.recipe.prompt,
      title: job.recipe.prompt,
      onclick: () => open(job),
    }),
    el("span.lu-queue-art", { "aria-hidden": "true" }),
    el("div", { style: { "min-width": "0" } }, el("p.lu-queue-prompt", {}, job.recipe.prompt), el("p.lu-queue-state")),
    action
      ? el(
          "button.lu-icon-button.lu-queue-action",
          { type: "button", "aria-label": `${action[1]}: ${job.recipe.prompt}`, title: action[1], onclick: action[2] },
          icon(action[0]),
        )
      : "",
    job.state === "running" ? el("div.lu-queue-progress", {}, el("i")) : "",
  );
}

function open(job) {
  if (job.state === "running") follow();
  else show(job.id);
  setOpen(false);
}

function updateItem(item, { job, place }, shown) {
  item.dataset.shown = String(job.id === shown?.id);
  item.style.setProperty("--done", fractionOf(job));
  drawArt(item.querySelector(".lu-queue-art"), job, place);
  const state = item.querySelector(".lu-queue-state");
  const line = stateLine(job);
  setText(state, line);
  state.title = line;
}

function drawArt(art, job, place) {
  const picture = job.state === "done" ? at(job.outputs[0]?.thumb_url ?? "") : job.preview_url;
  if (picture) {
    const image = art.querySelector("img") ?? el("img", { alt: "" });
    const isStrip = job.state !== "done" && framesIn(job.recipe.shape) > 1; // a preview's frames, side by side
    image.style.objectPosition = isStrip ? "left" : "";
    if (image.src !== picture) image.src = picture;
    if (!image.parentElement) art.replaceChildren(image);
  } else if (job.state === "queued") {
    setText(art, String(place));
  } else if (!art.firstChild) {
    art.append(icon({ failed: "alert", interrupted: "pause", cancelled: "stop" }[job.state] ?? "spark"));
  }
}

function stateLine(job) {
  if (job.state === "running") return shortLine(job);
  if (job.state === "queued") {
    const left = secondsLeft(job);
    const count = job.recipe.batch_size > 1 ? `${job.recipe.batch_size} images` : "";
    return job.cancel_requested
      ? "Cancelling"
      : [job.reason, left === null ? "Waiting" : `in ${wholeSeconds(left)}`, count].filter(Boolean).join(" · ");
  }
  const when = ago(job.finished_at ?? job.created_at, Date.now() / 1000);
  if (job.state !== "done")
    return `${{ failed: "Failed", cancelled: "Cancelled", interrupted: "Interrupted" }[job.state]} · ${when}`;
  const took = job.timings?.total_s;
  return [job.outputs.length > 1 ? `${job.outputs.length} images` : "", took ? seconds(took) : "", when]
    .filter(Boolean)
    .join(" · ");
}
