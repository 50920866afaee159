// Create, Gallery, Presets or System: one of them at a time, in the address too, so that "back" works.

import { find } from "./dom.js";

const OTHERS = ["gallery", "presets", "system"];
const listeners = [];

export const isShown = (name) => document.documentElement.dataset.view === name;

export const isCreating = () => isShown("create");

export const shownView = () => document.documentElement.dataset.view;

/** `listener(name)` is called whenever the other view is shown. */
export function onView(listener) {
  listeners.push(listener);
}

export function showView(name) {
  if (isShown(name)) return;
  history.pushState({}, "", OTHERS.includes(name) ? `#${name}` : addressOfCreate());
  apply();
}

const addressOfCreate = () => location.pathname + location.search;

function apply() {
  const name = OTHERS.find((other) => location.hash === `#${other}`) ?? "create";
  document.documentElement.dataset.view = name;
  for (const link of document.querySelectorAll(".lu-views a"))
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  for (const listener of listeners) listener(name);
}

export function mountViews() {
  for (const link of document.querySelectorAll(".lu-views a"))
    link.addEventListener("click", (event) => {
      event.preventDefault(); // a proxy's <base> would lead elsewhere
      showView(link.dataset.view);
      find(`lu-${link.dataset.view}-title`)?.focus();
    });
  addEventListener("popstate", apply);
  apply();
}
