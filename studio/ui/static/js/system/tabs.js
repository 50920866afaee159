// The System view's tabs: one is shown, and the address names it, so that it can be linked and outlives a reload.

import { find } from "../core/dom.js";
import { isShown, keepPart, onView, partInAddress } from "../core/views.js";

const FIRST = "devices";

let shown = FIRST;

export const shownTab = () => shown;

/** `onOpen()` is called whenever the System view or another of its tabs is opened. */
export function mountTabs(onOpen) {
  const open = () => {
    choose(partInAddress() || shown);
    onOpen();
  };
  find("lu-sys-tabs").addEventListener("click", (event) => {
    const { tab } = event.target.closest("[data-tab]")?.dataset ?? {};
    if (!tab || tab === shown) return;
    choose(tab);
    onOpen();
  });
  find("lu-sys-tabs").addEventListener("keydown", press);
  onView((name) => name === "system" && open());
  if (isShown("system")) open();
}

const allTabs = () => /** @type {HTMLElement[]} */ ([...find("lu-sys-tabs").children]);

/** An unknown name is the first tab's. */
function choose(name) {
  shown = allTabs().some(({ dataset }) => dataset.tab === name) ? name : FIRST;
  for (const tab of allTabs()) {
    const isChosen = tab.dataset.tab === shown;
    tab.setAttribute("aria-selected", String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
  }
  for (const panel of document.querySelectorAll("#lu-system [data-panel]"))
    panel.hidden = panel.dataset.panel !== shown;
  keepPart(shown);
}

/** Arrows choose at once, as opening a tab costs next to nothing. */
function press(event) {
  const tabs = allTabs().filter((tab) => !tab.hidden);
  const here = tabs.findIndex(({ dataset }) => dataset.tab === shown);
  const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: -1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const tab = tabs.at(next % tabs.length);
  tab.focus();
  tab.click();
}
