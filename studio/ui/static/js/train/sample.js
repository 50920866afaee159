// A sample of a training as large as it was kept, beside nothing else; arrows go to the older and the newer ones. A video
// moves here, unless the system asks for less motion.

import { at } from "../core/api.js";
import { find, focused, setStyles, setText } from "../core/dom.js";
import { MAX_SCALE } from "../core/format.js";
import { t } from "../core/text.js";

/** @type {any[]} */
let samples = []; // newest first
let place = 0;
let isMoving = false;

export function mountSample() {
  const dialog = find("lu-sample");
  dialog.addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]");
    if (step) turn(Number(step.dataset.step));
    else dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    turn(step);
  });
}

export function openSample(all, sample, { isVideo = false } = {}) {
  samples = all;
  isMoving = isVideo && !matchMedia("(prefers-reduced-motion: reduce)").matches;
  place = all.indexOf(sample);
  draw();
  find("lu-sample").showModal();
}

function turn(step) {
  place = Math.min(samples.length - 1, Math.max(0, place + step));
  draw();
}

function draw() {
  const { url, step, prompt, width, height } = samples[place];
  const image = find("lu-sample-picture");
  image.src = at(isMoving ? `${url}?moving=true` : url);
  image.alt = prompt;
  const ratio = width / height;
  const room = `calc(100vw - var(--zoom-side)), calc(80dvh * ${ratio})`;
  setStyles(image, { "--ratio": ratio, "--zoom-width": `min(${room}, ${MAX_SCALE * width}px)` });
  setText(find("lu-sample-words"), `${t("train.atStep", { step })} · ${prompt}`);
  const dialog = find("lu-sample");
  const steps = [...dialog.querySelectorAll("[data-step]")];
  for (const button of steps) button.setAttribute("aria-disabled", String(!samples[place + Number(button.dataset.step)]));
  const isOff = (button) => button.getAttribute("aria-disabled") === "true";
  if (!steps.some((button) => button === focused() && isOff(button))) return;
  (steps.find((button) => !isOff(button)) ?? dialog.querySelector("button:not([data-step])")).focus(); // it hides
}
