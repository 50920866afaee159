// Help over the page: the keys as keymap.js defines them, and where this studio keeps its files.

import { readSystem } from "../core/api.js";
import { el, find, setText } from "../core/dom.js";
import { KEYMAP, keycaps } from "../core/keymap.js";
import { state } from "../core/store.js";
import { setSingleKeys, singleKeysOn } from "../core/singlekeys.js";
import { t } from "../core/text.js";

const PLACES = [
  [["create"], t("view.create")],
  [["train"], t("view.train")],
  [["gallery", "presets"], t("help.galleryAndPresets")],
  [["system"], t("help.everywhere")],
];

export function mountHelp() {
  find("lu-keymap").replaceChildren(...PLACES.flatMap(([views, title], index) => group(title, rowsOf(views, index))));
  const single = find("lu-single-keys");
  single.checked = singleKeysOn();
  single.addEventListener("change", () => setSingleKeys(single.checked));
  find("lu-keys-button").addEventListener("click", openHelp);
  find("lu-keys").addEventListener("click", (event) => {
    if (event.target === find("lu-keys") || event.target.closest("[data-close]")) find("lu-keys").close();
  });
}

/** A row stands where it is first of use; what works on every view, under "Everywhere". */
function rowsOf(views, index) {
  const isEverywhere = (row) => row.on.includes("system");
  const isLast = index === PLACES.length - 1;
  return KEYMAP.filter((row) => isEverywhere(row) === isLast && row.on.some((view) => views.includes(view)));
}

function group(title, rows) {
  return [
    el("h4", {}, title),
    el("dl", {}, ...rows.flatMap((row) => [el("dt", {}, t(`key.${row.id}`)), el("dd", {}, ...keycaps(row).map(capsOf))])),
  ];
}

const capsOf = (caps) => el("span.lu-caps", {}, ...caps.map((cap) => el("kbd", {}, cap)));

export function openHelp() {
  if (find("lu-keys").open) return;
  find("lu-keys").showModal();
  if (!state.me?.is_operator) return; // others need not know where: it only says that there is a folder
  readSystem().then(
    ({ data_dir }) => setText(find("lu-help-folder"), t("help.folderAt", { folder: data_dir })),
    () => undefined,
  );
}
