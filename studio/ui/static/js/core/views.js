// Create, Train, Gallery, Presets or System: one of them at a time, in the address too, so that "back" works. A view may have
// parts of its own there: #system/storage.

import { find } from "./dom.js";

const OTHERS = ["train", "gallery", "presets", "system"];
const listeners = [];

export const isShown = (name) => document.documentElement.dataset.view === name;

export const isCreating = () => isShown("create");

export const shownView = () => document.documentElement.dataset.view;

/** `listener(name)` is called whenever the other view is shown. */
export function onView(listener) {
  listeners.push(listener);
}

/** `part` is of the view, as the address names it. */
export function showView(name, part = "") {
  if (isShown(name)) return;
  history.pushState({}, "", OTHERS.includes(name) ? `#${name}${part && `/${part}`}` : addressOfCreate());
  apply();
}

/** The part of a view that the address names, "" where it names none. */
export const partInAddress = () => location.hash.split("/").slice(1).join("/");

/** Names the shown view's part in the address; "back" leaves the view as before. */
export function keepPart(part) {
  history.replaceState(history.state, "", `#${shownView()}/${part}`);
}

/** Names a part that lies over the view, in an entry of its own: "back" leaves the part first, from a bookmark too. */
export function openPart(part) {
  if (history.state?.isPart) return keepPart(part); // a reload, or "forward"
  history.replaceState({}, "", `#${shownView()}`);
  history.pushState({ isPart: true }, "", `#${shownView()}/${part}`);
}

/** The address names no part any more. */
export const dropPart = () => history.replaceState({}, "", `#${shownView()}`);

const addressOfCreate = () => location.pathname + location.search;

function apply() {
  const [place] = location.hash.slice(1).split("/");
  const name = OTHERS.find((other) => other === place) ?? "create";
  document.documentElement.dataset.view = name;
  for (const link of document.querySelectorAll(".lu-views a"))
    if (link.dataset.view === name) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" }); // on narrow phones they scroll
    } else link.removeAttribute("aria-current");
  for (const listener of listeners) listener(name);
}

export function mountViews() {
  for (const link of document.querySelectorAll(".lu-views a"))
    link.addEventListener("click", (event) => {
      event.preventDefault(); // a proxy's <base> would lead elsewhere
      showView(link.dataset.view);
      find(`lu-${link.dataset.view}-title`)?.focus();
    });
  find("lu-skip").addEventListener("click", () => (isCreating() ? find("lu-prompt") : find(`lu-${shownView()}-title`)).focus());
  addEventListener("popstate", apply);
  apply();
}
