// The pictures to learn from: files sent at once, or outputs of the gallery, each with a caption. They survive a refresh.
// Not here: what is dropped or pasted (files.js), the rest of the form (form.js).

import { at, inputThumbPath, uploadPicture } from "../core/api.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { percent, sentence } from "../core/format.js";
import { recallJson, remember } from "../core/memory.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { MAX_BYTES } from "../create/inputs.js";

const KEY = "lumesh.train.pictures";
const MAX = 500;
const MAX_CAPTION = 2000;

/**
 * `id` is null on its way; `sent` resolves to whether it came.
 * @typedef {{ key: number, id: string | null, thumb: string, caption: string, percent: number, sent: Promise<boolean> | true }} Picture
 * @type {Picture[]}
 */
let pictures = [];
let count = 0;
let problems = new Map(); // place -> what is wrong there
let turn = Promise.resolve(); // one file after the other: the server decodes one at a time
let tell = () => undefined;

/** `change()` follows every picture that comes or goes, and every caption. */
export function mountPictures(change) {
  tell = change;
  const file = find("lu-train-file");
  find("lu-train-add").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    addTrainFiles([...file.files]);
    file.value = ""; // the same file may be chosen again
  });
  find("lu-train-clear").addEventListener("click", clear);
  find("lu-train-all-use").addEventListener("click", captionAll);
  find("lu-train-all").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // it would train
    captionAll();
  });
  for (const { id, caption } of recallJson(KEY, [])) pictures.push(ofId(id, caption));
  drawPictures();
}

/** [{id, caption}] as the server takes them. */
export const readPictures = () => pictures.filter(({ id }) => id).map(({ id, caption }) => ({ id, caption }));

export const countPictures = () => pictures.length;

/** True when every file has come. */
export async function picturesSent() {
  const sent = await Promise.all(pictures.map((picture) => picture.sent));
  return sent.every(Boolean);
}

/** Pictures that were made here, with their prompts as captions. */
export function addTrainOutputs(outputs) {
  const known = new Set(pictures.map(({ id }) => id));
  const fresh = outputs.filter(({ id, kind }) => kind === "image" && !known.has(id)).slice(0, MAX - pictures.length);
  for (const { id, recipe } of fresh) pictures.push(ofId(id, recipe.prompt.slice(0, MAX_CAPTION)));
  changed();
  if (outputs.some(({ kind }) => kind !== "image")) toast(t("train.noVideos"));
}

/** Files as pictures, as far as there is room; says so where there is not. */
export function addTrainFiles(files) {
  const images = files.filter((file) => file.type.startsWith("image/") && file.size <= MAX_BYTES);
  const taken = images.slice(0, Math.max(0, MAX - pictures.length));
  for (const file of taken) pictures.push(send(file));
  changed();
  const tooLarge = files.find((file) => file.size > MAX_BYTES);
  if (tooLarge) say(t("inputs.tooLarge", { name: tooLarge.name }));
  else if (taken.length < images.length) say(t("train.tooMany", { count: MAX }));
  else if (images.length < files.length) say(t("train.onlyPictures"));
}

/** @param {Record<string, string>} fields what the server says, such as {"pictures.3.caption": "…"} */
export function showPictureProblems(fields) {
  problems = new Map();
  for (const [field, message] of Object.entries(fields)) {
    const place = /^pictures\.(\d+)\./.exec(field)?.[1];
    if (place !== undefined) problems.set(Number(place), message);
  }
  drawPictures();
  const [first] = problems.keys();
  if (first !== undefined) find("lu-train-pictures").children[first]?.querySelector("textarea")?.focus();
}

const say = (text) => setText(document.querySelector('#lu-train [data-message="pictures"]'), text);

function ofId(id, caption) {
  count += 1;
  return { key: count, id, thumb: at(inputThumbPath(id)), caption, percent: 100, sent: /** @type {true} */ (true) };
}

/** @returns {Picture} */
function send(file) {
  count += 1;
  const local = URL.createObjectURL(file);
  const picture = { key: count, id: null, thumb: local, caption: "", percent: 0, sent: /** @type {true} */ (true) };
  const sent = turn.then(() => transfer(picture, file)).finally(() => URL.revokeObjectURL(local));
  turn = sent.then(() => undefined);
  return Object.assign(picture, { sent });
}

async function transfer(picture, file) {
  if (!pictures.includes(picture)) return true; // removed meanwhile
  try {
    const upload = await uploadPicture(file, (done) => {
      picture.percent = done;
      drawPictures();
    });
    if (pictures.some((other) => other !== picture && other.id === upload.id)) {
      pictures = pictures.filter((other) => other !== picture);
      toast(t("inputs.already"));
    } else Object.assign(picture, { id: upload.id, thumb: at(upload.thumb_url), percent: 100 });
    changed();
    return true;
  } catch (error) {
    if (!pictures.includes(picture)) return true;
    pictures = pictures.filter((other) => other !== picture);
    changed();
    say(t("common.file", { name: file.name, text: together(error.message, error.advice) }));
    return false;
  }
}

function changed() {
  problems = new Map();
  say("");
  remember(KEY, JSON.stringify(readPictures()));
  drawPictures();
  tell();
}

function clear() {
  const before = pictures;
  pictures = [];
  changed();
  find("lu-train-add").focus();
  const act = () => {
    pictures = before;
    changed();
  };
  toast(t("train.cleared"), { label: t("trash.undo"), act });
}

/** Other pictures, `[{id, caption}]`, in place of those that are there; what it returns brings these back. */
export function replacePictures(others) {
  const before = pictures;
  pictures = others.map(({ id, caption }) => ofId(id, caption));
  changed();
  return () => {
    pictures = before;
    changed();
  };
}

/** What the trainings of these pictures leave: an empty form. */
export function forgetPictures() {
  pictures = [];
  changed();
}

function captionAll() {
  const caption = find("lu-train-all").value.trim();
  for (const picture of pictures) picture.caption = caption;
  for (const area of find("lu-train-pictures").querySelectorAll("textarea")) area.value = caption;
  changed();
}

function remove(picture) {
  const place = pictures.indexOf(picture);
  pictures = pictures.filter((other) => other !== picture);
  changed();
  const next = pictures[Math.min(place, pictures.length - 1)];
  const button = next && find("lu-train-pictures").querySelector(`[data-key="${next.key}"] button`);
  (button ?? find("lu-train-add")).focus();
}

function drawPictures() {
  const total = pictures.length;
  setText(find("lu-train-count"), total ? t("train.count", { count: total }) : "");
  find("lu-train-clear").hidden = !total;
  find("lu-train-all-row").hidden = total < 2;
  find("lu-train").dataset.empty = String(!total);
  keyed(
    find("lu-train-pictures"),
    pictures.map((picture, place) => ({ picture, place })),
    { key: ({ picture }) => picture.key, create: ({ picture }) => create(picture), update },
  );
}

function create(picture) {
  const area = el("textarea.lu-input.lu-area", { rows: 2, maxlength: MAX_CAPTION, placeholder: t("train.captionHint") });
  area.value = picture.caption;
  area.addEventListener("input", () => {
    picture.caption = area.value;
    remember(KEY, JSON.stringify(readPictures()));
    tell();
  });
  return el(
    "li.lu-train-picture",
    {},
    el(
      "div.lu-train-art",
      {},
      el("img", { alt: "", decoding: "async" }),
      el("span.lu-input-state", {}),
      el("button.lu-icon-button", { type: "button", onclick: () => remove(picture), title: t("common.remove") }, icon("close")),
    ),
    area,
    el("p.lu-message", { role: "alert" }),
  );
}

function update(tile, { picture, place }) {
  const image = tile.querySelector("img");
  if (image.getAttribute("src") !== picture.thumb) image.src = picture.thumb;
  const state = tile.querySelector(".lu-input-state");
  state.hidden = picture.id !== null;
  setText(state, picture.id === null ? percent(picture.percent / 100) : "");
  tile.querySelector("button").setAttribute("aria-label", t("train.remove", { place: place + 1 }));
  tile.querySelector("textarea").setAttribute("aria-label", t("train.captionOf", { place: place + 1 }));
  const problem = problems.get(place) ?? "";
  tile.classList.toggle("lu-wrong", Boolean(problem));
  setText(tile.querySelector(".lu-message"), sentence(problem));
}
