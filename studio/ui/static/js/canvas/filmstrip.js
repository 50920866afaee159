// Recent results, newest first; what runs comes first and leads to the live view.

import { at } from "../core/api.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { framesIn, percent, ratioOf, seconds } from "../core/format.js";
import { fractionOf } from "../core/progress.js";
import { filmJobs, lookAt, show, shownJob } from "../core/store.js";
import { t } from "../core/text.js";

let shownKey = null;

export function drawFilmstrip() {
  const jobs = filmJobs();
  const shown = shownJob();
  find("lu-film").hidden = jobs.length === 0;
  keyed(find("lu-film-row"), jobs, { key: keyOf, create, update: (tile, job) => update(tile, job, shown) });
  const key = shown && keyOf(shown);
  if (key !== shownKey) {
    shownKey = key;
    reveal(find("lu-film-row").querySelector("[aria-current=true]"));
  }
}

const keyOf = (job) => [job.id, job.state, ...(job.outputs ?? []).map(({ id }) => id)].join(" ");

function create(job) {
  if (job.state === "running") {
    return el(
      "button.lu-film-item",
      { type: "button", onclick: () => lookAt(job) },
      el("span.lu-film-live"),
    );
  }
  const tile = el("button.lu-film-item", { type: "button", onclick: () => show(job.id), title: job.recipe.prompt });
  tile.append(el("img", { src: at(job.outputs[0].thumb_url), alt: "", loading: "lazy", decoding: "async" }));
  const count = countOf(job);
  if (count) tile.append(el("span.lu-film-count.lu-num", {}, count));
  tile.append(el("span.lu-film-star", { hidden: true }, icon("star")));
  return tile;
}

/** What stands on a tile: how many pictures it has, or how long its video is. */
function countOf({ outputs, recipe }) {
  if (outputs.length > 1) return String(outputs.length);
  return outputs[0].kind === "video" ? seconds(outputs[0].frames / recipe.fps) : "";
}

function nameOf(job, isMarked) {
  const count = countOf(job);
  const { prompt } = job.recipe;
  const name = count ? t("common.named", { name: count, value: prompt }) : prompt;
  return isMarked ? t("common.named", { name: t("gallery.favourite"), value: name }) : name;
}

function update(tile, job, shown) {
  tile.style.setProperty("--ratio", Math.min(2, ratioOf(job.recipe.shape)));
  tile.setAttribute("aria-current", String(job.id === shown?.id));
  if (job.state === "done") {
    const isMarked = job.outputs.some(({ favourite }) => favourite);
    tile.querySelector(".lu-film-star").hidden = !isMarked;
    tile.setAttribute("aria-label", nameOf(job, isMarked));
  }
  if (job.state !== "running") return;
  const live = tile.querySelector(".lu-film-live");
  const done = job.phase === "denoising" ? `${job.step}/${job.steps}` : percent(fractionOf(job));
  setText(live, done);
  tile.setAttribute("aria-label", t("common.named", { name: t("canvas.making"), value: done }));
  live.style.setProperty("--done", fractionOf(job));
  if (job.preview_url) {
    const image = tile.querySelector("img") ?? tile.insertBefore(el("img", { alt: "", onerror: () => image.remove() }), live);
    image.style.objectPosition = framesIn(job.recipe.shape) > 1 ? "left" : ""; // the first of the frames side by side
    if (image.src !== job.preview_url) image.src = job.preview_url;
  }
}

/** Scrolls the strip, never the page. */
function reveal(tile) {
  if (!tile) return;
  const row = find("lu-film-row");
  const [left, right] = [tile.offsetLeft - row.offsetLeft, tile.offsetLeft - row.offsetLeft + tile.offsetWidth];
  if (left < row.scrollLeft + 20) row.scrollLeft = left - 20;
  else if (right > row.scrollLeft + row.clientWidth - 20) row.scrollLeft = right - row.clientWidth + 20;
}
