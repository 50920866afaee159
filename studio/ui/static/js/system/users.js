// The Users tab of the System view, for admins: who may log in, one more, a new password, one less.

import { addUser, listUsers, removeUser, resetPassword } from "../core/api.js";
import { attempt } from "../core/attempt.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";

const LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"; // none that is read for another; 32, so that each counts five bits
const GROUPS = 4;
const GROUP_LETTERS = 4;

let resetName = "";

export function mountUsers() {
  for (const button of document.querySelectorAll("[data-suggest]"))
    button.addEventListener("click", () => fill(button.dataset.suggest, suggest(), "text"));
  find("lu-user-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt("lu-user-message", add);
  });
  find("lu-reset-form").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt("lu-reset-message", reset);
  });
  find("lu-reset").addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) find("lu-reset").close();
  });
  find("lu-reset").addEventListener("close", () => fill("lu-reset-password", ""));
}

export const openUsers = () => attempt("lu-users-message", draw);

function suggest() {
  const random = crypto.getRandomValues(new Uint8Array(GROUPS * GROUP_LETTERS));
  const letters = [...random].map((one) => LETTERS[one % LETTERS.length]).join("");
  return letters.match(new RegExp(`.{${GROUP_LETTERS}}`, "g")).join("-");
}

/** A password that somebody has to pass on is seen; what they type themselves is not. */
function fill(id, password, type = "password") {
  find(id).type = type;
  find(id).value = password;
}

async function draw() {
  const { users } = await listUsers();
  keyed(find("lu-users"), users, {
    key: (user) => JSON.stringify(user),
    create: (user) => {
      const named = user.is_admin ? t("me.admin", { name: user.name }) : user.name;
      return el(
        "li.lu-user",
        {},
        el(
          "div",
          {},
          el("strong", {}, user.is_you ? t("system.you", { owner: named }) : named),
          el("span", {}, factsOf(user).join(" · ")),
        ),
        ...(user.is_you ? [] : [resetButton(user), removeButton(user)]),
      );
    },
  });
}

const factsOf = ({ outputs, tokens, has_password: hasPassword }) => [
  ...(hasPassword ? [] : [t("users.noPassword")]),
  t("gallery.count", { count: outputs }),
  t("account.count", { count: tokens }),
];

const resetButton = ({ name }) =>
  el(
    "button.lu-button",
    {
      type: "button",
      "aria-label": t("common.named", { name: t("users.setPassword"), value: name }),
      onclick: () => openReset(name),
    },
    t("users.setPassword"),
  );

const removeButton = (user) =>
  el(
    "button.lu-icon-button",
    {
      type: "button",
      title: t("common.remove"),
      "aria-label": t("common.named", { name: t("common.remove"), value: user.name }),
      onclick: () => attempt("lu-users-message", () => remove(user)),
    },
    icon("trash"),
  );

async function add() {
  const is_admin = find("lu-user-admin").checked;
  const { name, outputs } = await addUser({ name: find("lu-user-name").value, password: find("lu-user-password").value, is_admin });
  find("lu-user-name").value = "";
  find("lu-user-admin").checked = false;
  fill("lu-user-password", "");
  setText(find("lu-user-note"), together(t("users.added", { name }), outputs ? t("users.inherits", { name, count: outputs }) : ""));
  await draw();
}

function openReset(name) {
  resetName = name;
  setText(find("lu-reset-title"), t("users.resetTitle", { name }));
  setText(find("lu-reset-message"), "");
  find("lu-reset").showModal();
  find("lu-reset-password").focus();
}

async function reset() {
  await resetPassword(resetName, find("lu-reset-password").value);
  find("lu-reset").close();
  toast(t("users.reset", { name: resetName }));
  await openUsers();
}

async function remove({ name, outputs }) {
  if (!window.confirm(t("users.confirmRemove", { name, count: outputs }))) return;
  await removeUser(name);
  toast(t("users.removed", { name }));
  await draw();
  find("lu-user-name").focus();
}
