// The Account dialog: one's own password, and the tokens that scripts use. Not here: other people's accounts (users.js).

import { changePassword, makeToken, readAccount, revokeToken } from "../core/api.js";
import { attempt } from "../core/attempt.js";
import { copyText } from "../core/clipboard.js";
import { el, find, icon, keyed, setText } from "../core/dom.js";
import { ago } from "../core/format.js";
import { state } from "../core/store.js";
import { t } from "../core/text.js";
import { toast } from "../core/toasts.js";

const PASSWORDS = ["lu-account-current", "lu-account-new", "lu-account-again", "lu-token-password"];

export function mountAccount() {
  const dialog = find("lu-account");
  find("lu-me-account").addEventListener("click", open);
  dialog.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) dialog.close();
  });
  dialog.addEventListener("close", () => {
    forget();
    find("lu-me-button").focus(); // what opened it is folded away
  });
  send("lu-account-form", "lu-account-message", change);
  send("lu-token-form", "lu-token-message", make);
  find("lu-token-copy").addEventListener("click", async () => {
    await copyText(find("lu-token").value);
    toast(t("account.copied"));
  });
}

const send = (form, place, act) =>
  find(form).addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(place, act);
  });

async function open() {
  find("lu-me").open = false;
  forget();
  find("lu-account-name").value = state.me.name;
  find("lu-account").showModal();
  find("lu-account-current").focus();
  await attempt("lu-token-message", draw);
}

/** What was typed and shown is gone once the dialog is closed. */
function forget() {
  for (const id of [...PASSWORDS, "lu-token", "lu-token-name"]) find(id).value = "";
  find("lu-token-box").hidden = true;
  for (const id of ["lu-account-message", "lu-token-message"]) setText(find(id), "");
}

async function change() {
  const password = find("lu-account-new").value;
  if (password !== find("lu-account-again").value) {
    setText(find("lu-account-message"), t("account.differ"));
    find("lu-account-again").focus();
    return;
  }
  await changePassword(find("lu-account-current").value, password);
  forget();
  toast(t("account.changed"));
  await draw();
}

async function make() {
  const { token } = await makeToken(find("lu-token-name").value, find("lu-token-password").value);
  forget();
  find("lu-token").value = token;
  find("lu-token-box").hidden = false;
  await draw();
  find("lu-token").select();
}

async function revoke({ id, name }) {
  if (!window.confirm(t("account.confirmRevoke", { name: nameOf(name) }))) return;
  await revokeToken(id);
  toast(t("account.revoked"));
  await draw();
  find("lu-token-name").focus();
}

const nameOf = (name) => name || t("account.unnamed");

async function draw() {
  const { tokens } = await readAccount();
  const now_s = Date.now() / 1000;
  keyed(find("lu-tokens"), tokens, {
    key: ({ id }) => id,
    create: (token) =>
      el(
        "li.lu-user",
        {},
        el("div", {}, el("strong", {}, nameOf(token.name)), el("span", {}, t("account.madeAt", { when: ago(token.created_at, now_s) }))),
        el(
          "button.lu-icon-button",
          {
            type: "button",
            title: t("account.revoke"),
            "aria-label": t("common.named", { name: t("account.revoke"), value: nameOf(token.name) }),
            onclick: () => attempt("lu-token-message", () => revoke(token)),
          },
          icon("trash"),
        ),
      ),
  });
}
