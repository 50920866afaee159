// The hub dialog: look into a dataset repository, import what is chosen, push one's own.

import { listHub, pullFromHub, pushToHub, readPresets } from "../core/api.js";
import { el, find, setText } from "../core/dom.js";
import { recall, remember } from "../core/memory.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { said } from "../core/translate_server.js";
import { titleOf } from "../create/origin.js";

const REPO = "lumesh.hub";
const MAX_PUSHED = 100;

let tellPulled = () => undefined;
let isBusy = false;

/** `onPulled()` is called when presets came in. */
export function mountHub(onPulled) {
  tellPulled = onPulled;
  const dialog = find("lu-hub");
  dialog.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) dialog.close();
  });
  dialog.addEventListener("close", () => {
    find("lu-hub-token").value = "";
  });
  find("lu-hub-form").addEventListener("submit", (event) => {
    event.preventDefault();
    work(t("hub.looking"), look);
  });
  find("lu-hub-pull").addEventListener("click", () => work(t("hub.importing"), pull));
  find("lu-hub-push").addEventListener("click", () => work(t("hub.pushing"), push));
}

export function openHub() {
  find("lu-hub-repo").value ||= recall(REPO) ?? "";
  showFound([]);
  setText(find("lu-hub-note"), "");
  setText(find("lu-hub-message"), "");
  find("lu-hub").showModal();
}

/** One thing at a time; its end is a note, its failure a message. */
async function work(note, act) {
  if (isBusy) return;
  const repo = find("lu-hub-repo").value.trim();
  setText(find("lu-hub-message"), "");
  if (!/^[\w.-]+\/[\w.-]+$/.test(repo)) {
    setText(find("lu-hub-message"), t("hub.writeRepo"));
    find("lu-hub-repo").focus();
    return;
  }
  isBusy = true;
  setText(find("lu-hub-note"), note);
  try {
    setText(find("lu-hub-note"), await act({ repo, token: find("lu-hub-token").value.trim() }));
    remember(REPO, repo);
  } catch (error) {
    setText(find("lu-hub-note"), "");
    setText(find("lu-hub-message"), together(error.message, error.advice));
  } finally {
    isBusy = false;
  }
}

async function look(place) {
  showFound([]);
  const { names } = await listHub(place);
  showFound(names);
  return names.length ? "" : t("hub.none");
}

function showFound(names) {
  find("lu-hub-found").hidden = find("lu-hub-pull").hidden = names.length === 0;
  find("lu-hub-names").replaceChildren(
    ...names.map((name) =>
      el("label.lu-check", {}, el("input", { type: "checkbox", value: name, checked: true }), el("span", {}, name)),
    ),
  );
}

async function pull(place) {
  const names = [...find("lu-hub-names").querySelectorAll("input:checked")].map((box) => box.value);
  if (!names.length) return t("hub.chooseOne");
  const { presets, known, refused } = await pullFromHub(place, names);
  tellPulled();
  if (presets.length) toast(t("preset.imported", { count: presets.length, title: presets[0].title }));
  const here = known.length ? t("preset.known", { count: known.length, title: titleOf(known[0]) }) : "";
  if (!refused.length && !here) find("lu-hub").close();
  return together(here, ...refused.map((one) => t("common.file", { name: one.name, text: said(one, "detail") })));
}

async function push(place) {
  const { presets } = await readPresets({});
  const own = presets.filter((preset) => preset.origin.kind !== "shipped").slice(0, MAX_PUSHED);
  if (!own.length) return t("hub.nothing");
  const { url } = await pushToHub(
    place,
    own.map((preset) => preset.id),
  );
  return t("hub.pushed", { count: own.length, url });
}
