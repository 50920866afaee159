// Who is logged in, the way to one's account, and the way out. Nothing is shown where everybody is the same visitor.

import { at } from "../core/api.js";
import { find, setText } from "../core/dom.js";
import { isOperator, mayTrain, state } from "../core/store.js";
import { t } from "../core/text.js";

export function mountMe() {
  const menu = find("lu-me");
  document.addEventListener("click", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    menu.open = false;
    find("lu-me-button").focus();
  });
  find("lu-me-leave").action = at("logout");
}

export function drawMe() {
  const { me } = state;
  find("lu-nav-train").hidden = !mayTrain();
  find("lu-train-refused").hidden = mayTrain();
  find("lu-train-form").hidden = !mayTrain();
  find("lu-nav-system").hidden = !isOperator();
  find("lu-system-refused").hidden = isOperator();
  find("lu-system-parts").hidden = !isOperator();
  find("lu-me-account").hidden = !me?.has_account;
  find("lu-sys-tab-users").hidden = !(me?.has_account && me.is_admin);
  find("lu-me").hidden = !me?.is_known;
  if (!me?.is_known) return;
  setText(find("lu-me-initial"), [...me.name][0].toUpperCase());
  setText(find("lu-me-name"), me.is_admin ? t("me.admin", { name: me.name }) : me.name);
  find("lu-me-button").setAttribute("aria-label", t("me.account", { name: me.name }));
  find("lu-me-leave").hidden = !me.can_log_out;
}
