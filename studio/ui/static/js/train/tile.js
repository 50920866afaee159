// A picture to learn from as a tile: the whole of it, how far it has come, its caption, and what there is to say of it. A
// clip plays when it is asked to.
// Not here: which pictures there are (pictures.js).

import { at, inputPath } from "../core/api.js";
import { el, icon, setIcon, setText } from "../core/dom.js";
import { percent, sentence } from "../core/format.js";
import { markControl } from "../core/problems.js";
import { t, together } from "../core/text.js";

export const MAX_CAPTION = 2000;

/** `write(picture, caption)`, `remove`, `again` and `lose` are what is done with it: typed, closed, sent anew, not found. */
export function createTile(picture, { write, remove, again, lose }) {
  const area = el("textarea.lu-input.lu-area", { rows: 2, maxlength: MAX_CAPTION, placeholder: t("train.captionHint") });
  area.value = picture.caption;
  area.addEventListener("input", () => write(picture, area.value));
  return el(
    "li.lu-train-picture",
    { data: { field: "picture" } },
    el(
      "div.lu-train-art",
      {},
      el("img", { alt: "", decoding: "async", onerror: () => lose(picture) }),
      el("span.lu-input-state", {}),
      el("button.lu-icon-button.lu-train-play", { type: "button", hidden: true, onclick: (event) => play(event.currentTarget, picture) }, icon("play")),
      el("button.lu-icon-button.lu-train-remove", { type: "button", onclick: () => remove(picture), title: t("common.remove") }, icon("close")),
    ),
    el("button.lu-button.lu-train-again", { type: "button", onclick: () => again(picture) }, t("train.again")),
    area,
    el("p.lu-message", { role: "alert" }),
    el("p.lu-model-note", {}),
  );
}

/** `small` says that it is too small for the model, "" where it is not. */
export function updateTile(tile, { picture, place, small }) {
  const image = tile.querySelector("img");
  if (picture.thumb && image.getAttribute("src") !== picture.thumb) image.src = picture.thumb;
  setText(tile.querySelector(".lu-input-state"), stateOf(picture));
  tile.dataset.gone = String(picture.isGone);
  const player = tile.querySelector(".lu-train-play");
  player.hidden = !picture.isVideo || !picture.id;
  drawPlayer(player, place);
  const isVideo = picture.isVideo;
  tile.querySelector(".lu-train-remove").setAttribute("aria-label", t(isVideo ? "train.removeClip" : "train.remove", { place: place + 1 }));
  const again = tile.querySelector(".lu-train-again");
  again.hidden = !picture.hasFailed;
  again.setAttribute("aria-label", t("common.named", { name: t("train.again"), value: picture.name }));
  const area = tile.querySelector("textarea");
  area.setAttribute("aria-label", t(isVideo ? "train.captionOfClip" : "train.captionOf", { place: place + 1 }));
  const message = tile.querySelector(".lu-message");
  const isWrong = picture.problem !== null;
  tile.classList.toggle("lu-wrong", isWrong);
  setText(message, sentence(picture.problem || picture.hasFailed));
  markControl(area, message, isWrong);
  setText(tile.querySelector(".lu-model-note"), together(picture.note, small));
}

/** Silently, for ever, over its still; once more, and it is still again. */
function play(button, { id }) {
  const art = button.parentElement;
  const before = art.querySelector("video");
  if (before) before.remove();
  else {
    const video = el("video", { src: at(inputPath(id)) });
    Object.assign(video, { muted: true, loop: true, playsInline: true, autoplay: true });
    art.firstElementChild.after(video);
  }
  drawPlayer(button, Number(button.dataset.place));
}

function drawPlayer(button, place) {
  const isPlaying = Boolean(button.parentElement.querySelector("video"));
  button.dataset.place = String(place);
  setIcon(button, isPlaying ? "pause" : "play");
  button.setAttribute("aria-label", t(isPlaying ? "train.stopClip" : "train.playClip", { place: place + 1 }));
}

function stateOf({ id, isGone, hasFailed, percent: done }) {
  if (isGone) return t("inputs.gone");
  if (id) return "";
  return hasFailed ? t("train.notSent") : done < 100 ? percent(done / 100) : t("inputs.checking");
}
