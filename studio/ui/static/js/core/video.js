// A finished video: it plays by itself, silently and for ever, unless the system asks for less motion.

import { at } from "./api.js";
import { el } from "./dom.js";

export function videoOf(output, job, { controls = false } = {}) {
  const video = el("video.lu-result", {
    src: at(output.url),
    poster: at(output.poster_url),
    "aria-label": job.recipe.prompt,
    preload: "auto",
  });
  Object.assign(video, { muted: true, loop: true, playsInline: true, controls });
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) video.autoplay = true;
  return video;
}
