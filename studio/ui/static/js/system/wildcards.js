// The wildcards that prompts may name: read, written and deleted one at a time, in the System view.

import { deleteWildcard, listWildcards, readWildcard, saveWildcard } from "../core/api.js";
import { attempt } from "../core/attempt.js";
import { el, find, setText } from "../core/dom.js";
import { t } from "../core/text.js";
import { toast } from "../core/toasts.js";

const NEW = ""; // the choice that is no list yet

let shown = null; // the list in the form, as the server has it

export function mountWildcards() {
  find("lu-words-list").addEventListener("change", ({ currentTarget }) =>
    attempt("lu-words-message", () => show(currentTarget.value)),
  );
  find("lu-words-name").addEventListener("input", note);
  find("lu-words-lines").addEventListener("input", note);
  find("lu-words-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt("lu-words-message", save);
  });
  find("lu-words-delete").addEventListener("click", () => attempt("lu-words-message", remove));
}

/** They may have changed meanwhile, on disk too; what is being written stays. */
export async function openWildcards() {
  await attempt("lu-words-message", async () => {
    const name = await list(shown?.name);
    if (!isChanged()) await show(name ?? NEW);
  });
}

/** Fills the choice and returns `wanted` if it is among the lists. */
async function list(wanted) {
  const { wildcards } = await listWildcards();
  find("lu-words-list").replaceChildren(
    el("option", { value: NEW }, t("words.new")),
    ...wildcards.map(({ name, count }) =>
      el("option", { value: name }, t("common.named", { name, value: t("words.count", { count }) })),
    ),
  );
  return wildcards.find(({ name }) => name === wanted)?.name;
}

async function show(name) {
  if (isChanged() && !window.confirm(t("words.discard"))) {
    find("lu-words-list").value = shown?.name ?? NEW;
    return;
  }
  shown = name === NEW ? null : await readWildcard(name);
  find("lu-words-list").value = name;
  find("lu-words-name").value = name;
  find("lu-words-lines").value = shown?.lines.join("\n") ?? "";
  find("lu-words-delete").hidden = !shown;
  note();
}

async function save() {
  const name = find("lu-words-name").value.trim();
  const isOther = name !== shown?.name && [...find("lu-words-list").options].some(({ value }) => value === name);
  if (isOther && !window.confirm(t("words.replace", { name }))) return;
  const { count } = await saveWildcard(name, lines());
  toast(t("words.saved", { name, value: t("words.count", { count }) }));
  await settle(name);
}

async function remove() {
  const { name } = shown;
  if (!window.confirm(t("words.confirmDelete", { name }))) return;
  await deleteWildcard(name);
  toast(t("words.deleted", { name }));
  await settle(NEW);
}

/** What the form holds is what the server has now, or nobody's. */
async function settle(name) {
  shown = { name, lines: lines() };
  find("lu-words-name").value = name;
  await list(name);
  await show(name);
}

/** A text area ends its last line as it likes. */
const lines = () => find("lu-words-lines").value.trimEnd().split("\n");

const isChanged = () =>
  find("lu-words-name").value.trim() !== (shown?.name ?? "") || lines().join("\n") !== (shown?.lines.join("\n") ?? "");

function note() {
  const name = find("lu-words-name").value.trim();
  setText(find("lu-words-note"), t("words.note", { name: `__${name || t("words.example")}__` }));
}
