// Pictures to start from: dropped, pasted or chosen, sent at once, kept in the order in which they were added.
// The draft holds their ids (controls.js); a file that is still on its way is only here.

import { at, inputThumbPath, uploadPicture } from "./api.js";
import { el, find, icon, keyed, setText } from "./dom.js";
import { toast } from "./toasts.js";

const MAX_BYTES = 20e6; // the server's limit: it would cut the connection of a longer file, which says nothing

let items = []; // {key, id (null on its way), thumb, percent, sent (a promise of whether it came)}
let model = null;
let count = 0;
let tell = { change: () => undefined, problem: () => undefined };

/** `change(ids)` follows every picture that comes or goes; `problem(message)` says why one did not, "" that all is well. */
export function mountInputs(change, problem) {
  tell = { change, problem };
  const file = find("lu-inputs-file");
  find("lu-inputs-add").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    addFiles([...file.files]);
    file.value = ""; // the same file may be chosen again
  });
  mountDrop();
  document.addEventListener("paste", (event) => {
    const pictures = [...event.clipboardData.files].filter((one) => one.type.startsWith("image/"));
    if (!pictures.length) return; // text goes where it is pasted
    event.preventDefault();
    addFiles(pictures);
  });
}

/** Anywhere on the page: a file that misses the row must not make the browser leave the page. */
function mountDrop() {
  const row = find("lu-inputs");
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    row.dataset.drop = "true";
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) delete row.dataset.drop;
  });
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    delete row.dataset.drop;
    addFiles([...event.dataTransfer.files]);
  });
}

export const countInputs = () => items.length;

/** True when every file has come; false when one did not, which its message says. */
export async function inputsSent() {
  const sent = await Promise.all(items.map((item) => item.sent));
  return sent.every(Boolean);
}

/** Why the picture cannot become an input of the chosen model; an empty text when it can. */
export function whyNoInput(output) {
  const max = model?.limits.images ?? 0;
  if (output.kind !== "image") return "A video cannot be an input picture";
  if (!max) return `${model?.title ?? "This model"} takes no input pictures`;
  if (items.some((item) => item.id === output.id)) return "It is an input picture already";
  return max > 1 && items.length >= max ? tooMany(max) : "";
}

const tooMany = (max) => `${model.title} takes at most ${max} input picture${max > 1 ? "s" : ""}`;

/** A picture that was made here. */
export function addInput(id) {
  tell.problem("");
  makeRoom();
  items.push(ofId(id));
  told();
}

/** A model that takes only one gets the new one instead. */
function makeRoom() {
  if (model.limits.images === 1) items = [];
}

function ofId(id) {
  count += 1;
  return { key: count, id, thumb: at(inputThumbPath(id)), percent: 100, sent: true };
}

function addFiles(files) {
  const max = model?.limits.images ?? 0;
  if (!files.length || !model) return;
  if (!max) {
    toast(`${model.title} takes no input pictures`);
    return;
  }
  tell.problem("");
  const fitting = files.filter((file) => file.size <= MAX_BYTES);
  if (fitting.length) makeRoom();
  const taken = fitting.slice(0, Math.max(0, max - items.length));
  for (const file of taken) items.push(send(file));
  told();
  const tooLarge = files.find((file) => file.size > MAX_BYTES);
  if (tooLarge) tell.problem(`“${tooLarge.name}” is larger than 20 MB; make it smaller`);
  else if (taken.length < files.length) tell.problem(tooMany(max));
}

/** The item of a file on its way. */
function send(file) {
  count += 1;
  const local = URL.createObjectURL(file);
  const item = { key: count, id: null, thumb: local, percent: 0 };
  item.sent = transfer(item, file).finally(() => URL.revokeObjectURL(local));
  return item;
}

async function transfer(item, file) {
  try {
    const upload = await uploadPicture(file, (percent) => {
      item.percent = percent;
      draw();
    });
    if (!items.includes(item)) return true; // removed meanwhile
    if (items.some((other) => other.id === upload.id)) {
      remove(item);
      toast("This picture is an input already");
      return true;
    }
    Object.assign(item, { id: upload.id, thumb: at(upload.thumb_url) });
    told();
    return true;
  } catch (error) {
    if (!items.includes(item)) return true;
    remove(item);
    tell.problem([`“${file.name}”:`, error.message, error.advice].filter(Boolean).join(" "));
    return false;
  }
}

function remove(item) {
  items = items.filter((other) => other !== item);
  told();
}

const idsOf = () => items.filter((item) => item.id).map((item) => item.id);

const told = () => tell.change(idsOf());

/** The row as the model and the draft want it; what is on its way stays, whatever the draft says. */
export function drawInputs(chosenModel, ids) {
  model = chosenModel;
  if (ids.join() !== idsOf().join()) items = [...ids.map(ofId), ...items.filter((item) => !item.id)];
  draw();
}

function draw() {
  const { images: max, min_images: min } = model.limits;
  const add = find("lu-inputs-add");
  const hadFocus = add === document.activeElement;
  find("lu-inputs").hidden = max === 0;
  Object.assign(find("lu-inputs").dataset, { empty: items.length === 0, excess: items.length > max });
  setText(find("lu-inputs-label"), max === 1 ? "First picture" : "Input pictures");
  setText(find("lu-inputs-count"), hintOf(min, max));
  setText(add.querySelector(".lu-inputs-wide"), `Drop, paste or choose ${max === 1 ? "a picture" : "pictures"}`);
  add.hidden = items.length >= max;
  find("lu-inputs-file").multiple = max > 1;
  keyed(find("lu-inputs-list"), items, { key: (item) => item.key, create, update });
  if (hadFocus && add.hidden) find("lu-inputs-list").querySelector("li:last-child button")?.focus();
}

function hintOf(min, max) {
  if (items.length > max) return `${items.length} of ${max}: remove ${items.length - max}`;
  if (items.length) return max > 1 ? `${items.length} of ${max}` : "";
  return min ? "needs a first picture" : max > 1 ? `up to ${max}` : "optional";
}

function create(item) {
  const image = el("img", {
    onerror: () => {
      tile.dataset.gone = String(Boolean(item.id)); // kept in a draft for too long, or its file was deleted
      draw();
    },
  });
  const drop = () => {
    const next = tile.nextElementSibling ?? tile.previousElementSibling;
    const target = next?.querySelector("button");
    tell.problem("");
    remove(item);
    (target ?? find("lu-inputs-add")).focus();
  };
  const tile = el(
    "li.lu-input-picture",
    {},
    image,
    el("span.lu-input-state.lu-num"),
    el("span.lu-input-number.lu-num", { "aria-hidden": "true" }),
    el("button.lu-input-remove", { type: "button", onclick: drop, title: "Remove" }, icon("close")),
  );
  return tile;
}

function update(tile, item) {
  const place = items.indexOf(item) + 1;
  const image = tile.querySelector("img");
  if (image.src !== item.thumb) image.src = item.thumb;
  image.alt = `Input picture ${place}`;
  const isGone = tile.dataset.gone === "true";
  const state = item.id ? (isGone ? "Gone" : "") : item.percent < 100 ? `${item.percent} %` : "Checking";
  setText(tile.querySelector(".lu-input-state"), state);
  tile.title = isGone ? "This picture is not there any more: remove it" : "";
  setText(tile.querySelector(".lu-input-number"), model.limits.images > 1 ? String(place) : "");
  tile.querySelector("button").setAttribute("aria-label", `Remove input picture ${place}`);
}
