// The pictures and clips to learn from: files sent at once, or outputs of the gallery, each with a caption. They survive a
// refresh.
// Not here: what is dropped or pasted (files.js), the tiles (tile.js), the rest of the form (form.js).

import { at, inputThumbPath, uploadClip, uploadPicture } from "../core/api.js";
import { find, keyed, setText } from "../core/dom.js";
import { sentence } from "../core/format.js";
import { makeLeftOut } from "../core/leftout.js";
import { recallJson, remember } from "../core/memory.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { saidList } from "../core/translate_server.js";
import { MAX_BYTES } from "../create/inputs.js";
import { MAX_CAPTION, createTile, updateTile } from "./tile.js";

const KEY = "lumesh.train.pictures";
const MAX = 500;
const MAX_CLIP_BYTES = 300e6; // the server's limit, as MAX is
const CLIP = /\.(mp4|m4v|mov|webm|mkv|avi|mpe?g|wmv|3gp|mts|m2ts|ts|ogv|flv)$/i; // of some a browser does not know the type
const MOST_ENLARGED = 2; // more than doubled, edges blur

/**
 * `id` is null until its file has come, which `sent` resolves to; `problem` is what the server says of it, "" where its
 * caption is missing as others are, which is told once. `size` is null where it is not known: of outputs.
 * @typedef {{
 *   key: number, id: string | null, thumb: string, caption: string, note: string, percent: number, file: File | null,
 *   name: string, isVideo: boolean, isSending: boolean, hasFailed: string, isGone: boolean, problem: string | null,
 *   size: { width: number, height: number } | null,
 *   sent: Promise<boolean> | true,
 * }} Picture
 * @type {Picture[]}
 */
let pictures = [];
let count = 0;
let learntArea = 0; // in pixels, of the model that is to learn; 0: not known
let turn = Promise.resolve(); // one file after the other: the server decodes one at a time
/** @type {{ picture: Picture, stop: AbortController } | null} */
let underway = null; // the one whose file is being sent
let tell = () => undefined;
let leftOut = { clear: () => undefined, add: (_name, _why) => undefined };

/** `change()` follows every picture that comes or goes, and every caption. */
export function mountPictures(change) {
  tell = change;
  leftOut = makeLeftOut(find("lu-train-left"));
  const file = find("lu-train-file");
  find("lu-train-add").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    addTrainFiles([...file.files]);
    file.value = ""; // the same file may be chosen again
  });
  find("lu-train-clear").addEventListener("click", clear);
  find("lu-train-all-use").addEventListener("click", captionAll);
  find("lu-train-all").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) captionAll();
  });
  for (const { id, caption, note = "", isVideo = false, size = null } of recallJson(KEY, []))
    pictures.push({ ...ofId(id, caption, isVideo), note, size });
  drawPictures();
}

/** [{id, caption}] as the server takes them. */
export const readPictures = () => pictures.filter(({ id }) => id).map(({ id, caption }) => ({ id, caption }));

/** Tells how many pixels the model that is to learn sees of a picture: which pictures are too small for it. */
export function setLearntArea(area) {
  if (area === learntArea) return;
  learntArea = area;
  drawPictures();
}

/** Whether it is enlarged so much that it is blurred. */
const isSmall = ({ size }) => size !== null && size.width * size.height * MOST_ENLARGED ** 2 < learntArea;

export const countPictures = () => pictures.length;

/** How many files are on their way, or wait for those before them. */
export const countSending = () => pictures.filter(({ isSending }) => isSending).length;

/** How many of them are clips. */
export const countClips = () => pictures.filter(({ isVideo }) => isVideo).length;

/** So many, as people say it. */
export function countText(total, clips) {
  const told = total > clips && t("train.count", { count: total - clips });
  if (!clips) return told || "";
  const also = t("train.countClips", { count: clips });
  return told ? t("train.countBoth", { pictures: told, clips: also }) : also;
}

/** How many files have not come; 0 when all are there, those too that were added meanwhile. */
export async function countUnsent() {
  const unsent = new Set();
  const wait = async (picture) => ((await picture.sent) ? unsent.delete(picture) : unsent.add(picture));
  do await Promise.all(pictures.map(wait));
  while (pictures.some(({ isSending }) => isSending));
  return unsent.size;
}

/** Whether one is marked because its caption is missing as others are. */
export const areLacking = () => pictures.some(({ problem }) => problem === "");

/** Pictures and videos that were made here, with their prompts as captions; the first new one's caption gets the focus. */
export function addTrainOutputs(outputs) {
  const known = new Set(pictures.map(({ id }) => id));
  const fresh = outputs.filter(({ id }) => !known.has(id));
  const taken = fresh.slice(0, MAX - pictures.length).map(ofOutput);
  pictures.push(...taken);
  changed();
  toast(
    together(
      t("train.added", { count: taken.length }),
      fresh.length < outputs.length ? t("train.addedBefore", { count: outputs.length - fresh.length }) : "",
      taken.length < fresh.length ? sentence(t("train.tooMany", { count: MAX })) : "",
    ),
  );
  const target = taken[0] ?? pictures.find(({ id }) => id === outputs[0]?.id);
  return () => tileOf(target)?.querySelector("textarea").focus();
}

/** Files as pictures, as far as there is room, and texts of their names as captions; those left out are listed. */
export function addTrainFiles(files) {
  leftOut.clear();
  const texts = files.filter(isText);
  for (const file of files.filter((one) => !isText(one))) {
    const isVideo = isClip(file);
    const most = isVideo ? MAX_CLIP_BYTES : MAX_BYTES;
    if (!isVideo && !file.type.startsWith("image/")) leftOut.add(file.name, t("train.onlyPictures"));
    else if (file.size > most) leftOut.add(file.name, t(isVideo ? "train.clipTooLarge" : "inputs.tooLarge", { size: most / 1e6 }));
    else if (pictures.length >= MAX) leftOut.add(file.name, t("train.tooMany", { count: MAX }));
    else pictures.push(ofFile(file));
  }
  changed();
  for (const text of texts) takeCaption(text);
}

const isText = (file) => /\.txt$/i.test(file.name);

const isClip = (file) => file.type.startsWith("video/") || CLIP.test(file.name);

const stemOf = (name) => name.replace(/\.[^.]*$/, "");

/** "zorb.txt" is the caption of "zorb.png", as in folders of the command line. */
async function takeCaption(file) {
  const picture = pictures.find(({ name }) => name && stemOf(name) === stemOf(file.name));
  const caption = picture ? (await file.text()).trim() : "";
  if (!picture) leftOut.add(file.name, t("train.noPictureOf"));
  else if (picture.caption.trim() && picture.caption.trim() !== caption) leftOut.add(file.name, t("train.hasCaption"));
  else if (caption.length > MAX_CAPTION) leftOut.add(file.name, t("train.longCaption", { count: MAX_CAPTION }));
  else {
    setCaption(picture, caption);
    changed();
  }
}

/**
 * Marks what is wrong with pictures, and takes away older marks; returns how many lack a caption, if several do: that is
 * told once, by the caller. The server names only the first of them.
 * @param {Record<string, string>} fields what the server says, such as {"pictures.3.caption": "…"}
 */
export function markPictures(fields) {
  for (const picture of pictures) picture.problem = null;
  const listed = pictures.filter(({ id }) => id);
  let missing = null;
  for (const [field, message] of Object.entries(fields)) {
    const [, place, what] = /^pictures\.(\d+)\.(\w+)/.exec(field) ?? [];
    const picture = place === undefined ? undefined : listed[place];
    if (what === "caption" && picture && !picture.caption.trim()) missing = message;
    else if (picture) picture.problem = message;
  }
  const bare = missing === null ? [] : listed.filter(({ caption }) => !caption.trim());
  for (const picture of bare) picture.problem ??= bare.length > 1 ? "" : missing;
  drawPictures();
  return bare.length > 1 ? bare.length : 0;
}

/** A trigger word stands for every caption that is missing. */
export function forgiveCaptions() {
  for (const picture of pictures) if (picture.problem === "") picture.problem = null;
  drawPictures();
}

/** Other pictures, `[{id, caption, is_video}]`, in place of those that are there; what it returns brings these back. */
export function replacePictures(others) {
  const before = pictures;
  const filled = others.map(({ id, caption, is_video: isVideo }) => ofId(id, caption, isVideo));
  pictures = filled;
  changed();
  return () => bringBack(before, filled);
}

/** What the training of these leaves, `[{id}]` as it was asked for: a form with what was added since. */
export function forgetPictures(asked) {
  const ids = new Set(asked.map(({ id }) => id));
  pictures = pictures.filter(({ id }) => !ids.has(id));
  if (!pictures.length) leftOut.clear();
  find("lu-train-all").value = "";
  changed();
}

/** @returns {Picture} */
function ofId(id, caption, isVideo) {
  count += 1;
  const sent = /** @type {true} */ (true);
  const state = { percent: 100, file: null, name: "", isSending: false, hasFailed: "", isGone: false, problem: null, size: null, sent };
  return { key: count, id, thumb: id ? at(inputThumbPath(id)) : "", caption, note: "", isVideo, ...state };
}

function ofOutput({ id, kind, recipe: { prompt } }) {
  const note = prompt.length > MAX_CAPTION ? t("train.cutCaption", { count: MAX_CAPTION }) : "";
  return { ...ofId(id, prompt.slice(0, MAX_CAPTION), kind === "video"), note };
}

function ofFile(file) {
  const isVideo = isClip(file);
  const thumb = isVideo ? "" : URL.createObjectURL(file); // a clip's comes with its answer
  const picture = { ...ofId(null, "", isVideo), file, name: file.name, thumb };
  send(picture);
  return picture;
}

/** Also what failed before, and what came back before it was sent. */
function send(picture) {
  Object.assign(picture, { percent: 0, hasFailed: "", isSending: true });
  picture.sent = turn.then(() => transfer(picture));
  turn = picture.sent.then(() => undefined);
}

/** True when it has come, or is not wanted any more. */
async function transfer(picture) {
  if (!pictures.includes(picture)) {
    picture.isSending = false;
    return true;
  }
  const follow = (done) => {
    picture.percent = done;
    drawPictures();
  };
  underway = { picture, stop: new AbortController() };
  try {
    arrive(picture, await (picture.isVideo ? uploadClip : uploadPicture)(picture.file, follow, underway.stop.signal));
    return true;
  } catch (error) {
    picture.isSending = false;
    if (!pictures.includes(picture)) return true;
    const why = together(error.message, error.advice);
    if (mayPass(error)) picture.hasFailed = why;
    else {
      leftOut.add(picture.name, why);
      pictures = pictures.filter((other) => other !== picture);
    }
    changed();
    return false;
  } finally {
    underway = null;
  }
}

/** Whether the same file may be taken another time: the network failed, or the server, or its limit for now. */
const mayPass = ({ status }) => status === undefined || status === 0 || status === 429 || status >= 500;

function arrive(picture, upload) {
  const { width, height } = upload;
  const note = together(...saidList(upload, "notes"));
  if (picture.thumb) URL.revokeObjectURL(picture.thumb);
  Object.assign(picture, { id: upload.id, thumb: at(upload.thumb_url), percent: 100, note, size: { width, height }, file: null, isSending: false });
  const same = pictures.find((other) => other !== picture && other.id === upload.id);
  if (same && pictures.includes(picture)) {
    pictures = pictures.filter((other) => other !== picture);
    leftOut.add(picture.name, t(same.isVideo ? "train.alreadyClip" : "train.already", { place: pictures.indexOf(same) + 1 }));
  }
  changed();
}

function keep() {
  const come = pictures.filter(({ id }) => id);
  remember(KEY, JSON.stringify(come.map(({ id, caption, note, isVideo, size }) => ({ id, caption, note, isVideo, size }))));
}

/** A file that was taken out while it is sent is sent no further: others wait behind it. */
function changed() {
  if (underway && !pictures.includes(underway.picture)) underway.stop.abort();
  keep();
  drawPictures();
  tell();
}

/** Those of before, and after them what was added since; `without` leave. */
function bringBack(before, without = []) {
  const ids = new Set(before.map(({ id }) => id).filter(Boolean));
  const since = pictures.filter((one) => !before.includes(one) && !without.includes(one) && !ids.has(one.id));
  pictures = [...before, ...since].slice(0, MAX);
  for (const picture of pictures) if (!picture.id && !picture.isSending && !picture.hasFailed) send(picture);
  changed();
  if (before.length + since.length > MAX) toast(sentence(t("train.tooMany", { count: MAX })));
}

const offerBack = (before, text) => toast(text, { label: t("trash.undo"), act: () => bringBack(before) });

function clear() {
  const before = pictures;
  pictures = [];
  leftOut.clear();
  changed();
  find("lu-train-add").focus();
  offerBack(before, t("train.cleared"));
}

function setCaption(picture, caption) {
  picture.caption = caption;
  if (picture.problem === "" && caption.trim()) picture.problem = null;
  const area = tileOf(picture)?.querySelector("textarea");
  if (area) area.value = caption;
}

function captionAll() {
  const caption = find("lu-train-all").value.trim();
  for (const picture of pictures) setCaption(picture, caption);
  changed();
}

function remove(picture) {
  const before = pictures;
  const place = pictures.indexOf(picture);
  pictures = pictures.filter((other) => other !== picture);
  changed();
  const next = pictures[Math.min(place, pictures.length - 1)];
  (tileOf(next)?.querySelector(".lu-train-remove") ?? find("lu-train-add")).focus();
  offerBack(before, t(picture.isVideo ? "train.removedClip" : "train.removed", { place: place + 1 }));
}

const tileOf = (picture) => picture && find("lu-train-pictures").querySelector(`[data-key="${picture.key}"]`);

function drawPictures() {
  const total = pictures.length;
  setText(find("lu-train-count"), countText(total, countClips()));
  find("lu-train-clear").hidden = !total;
  find("lu-train-all-row").hidden = total < 2;
  find("lu-train").dataset.empty = String(!total);
  keyed(
    find("lu-train-pictures"),
    pictures.map((picture, place) => ({ picture, place, small: isSmall(picture) ? t("train.small", picture.size) : "" })),
    { key: ({ picture }) => picture.key, create: ({ picture }) => createTile(picture, { write, remove, again, lose }), update: updateTile },
  );
}

function write(picture, caption) {
  const wasWrong = picture.problem !== null;
  Object.assign(picture, { caption, problem: null });
  if (wasWrong) return changed();
  keep(); // not drawn at every letter, where there may be 500
  return tell();
}

function again(picture) {
  send(picture);
  changed();
  tileOf(picture)?.querySelector("textarea").focus();
}

/** Its file was deleted meanwhile; one on its way has no file yet. */
function lose(picture) {
  picture.isGone = Boolean(picture.id);
  drawPictures();
}
