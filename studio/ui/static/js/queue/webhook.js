// The webhook's dialog: an address of one's own that is told of every job that ends.

import { pingWebhook, readWebhook, removeWebhook, setWebhook } from "../core/api.js";
import { copyText } from "../core/clipboard.js";
import { find, setText } from "../core/dom.js";
import { ago } from "../core/format.js";
import { t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { said } from "../core/translate_server.js";

export function mountWebhook() {
  const dialog = find("lu-hook");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[data-close]")) dialog.close();
  });
  find("lu-hook-form").addEventListener("submit", (event) => {
    event.preventDefault();
    save();
  });
  find("lu-hook-copy").addEventListener("click", async () => {
    await copyText(find("lu-hook-secret").value);
    toast(t("hook.copied"));
  });
  find("lu-hook-ping").addEventListener("click", () => attempt(ping));
  find("lu-hook-remove").addEventListener("click", () => attempt(async () => show((await removeWebhook()).webhook)));
}

export async function openWebhook() {
  await attempt(async () => show((await readWebhook()).webhook));
  find("lu-hook").showModal();
  find("lu-hook-url").focus();
}

const save = () =>
  attempt(async () => {
    const { webhook, secret } = await setWebhook(find("lu-hook-url").value.trim());
    show(webhook, secret);
  });

async function ping() {
  setText(find("lu-hook-told"), t("hook.sending"));
  const answer = await pingWebhook();
  const why = said(answer, "told");
  setText(find("lu-hook-told"), answer.is_taken ? t("hook.arrived") : t("hook.notArrived", { why }));
}

function show(webhook, secret = "") {
  find("lu-hook-url").value = webhook?.url ?? "";
  find("lu-hook-secret").value = secret;
  find("lu-hook-secret-box").hidden = !secret;
  for (const name of ["ping", "remove"]) find(`lu-hook-${name}`).hidden = !webhook;
  setText(find("lu-hook-told"), toldLine(webhook));
}

function toldLine(webhook) {
  if (!webhook) return "";
  if (!webhook.told_at) return t("hook.set");
  const when = ago(webhook.told_at, Date.now() / 1000);
  return t(webhook.attempts ? "hook.lastAgain" : "hook.last", { when, told: said(webhook, "told") });
}

async function attempt(act) {
  setText(find("lu-hook-message"), "");
  try {
    await act();
  } catch (error) {
    setText(find("lu-hook-told"), "");
    setText(find("lu-hook-message"), together(error.detail, error.advice));
  }
}
