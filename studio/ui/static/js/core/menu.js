// A menu at a button: one at a time, closed by Escape, a choice, or a click elsewhere (the browser's popover does that).

import { el, find, icon } from "./dom.js";

const GAP_PX = 4;

let opener = null;

/** `items`: {icon, label, act, isChecked?, isDanger?}; null is a line between two groups. */
export function openMenu(anchor, items, label) {
  const menu = find("lu-menu");
  opener = anchor;
  menu.setAttribute("aria-label", label);
  menu.replaceChildren(...items.map((item) => (item ? createItem(item) : el("hr"))));
  menu.showPopover();
  place(menu, anchor.getBoundingClientRect());
  menu.querySelector("button")?.focus();
}

export function mountMenu() {
  const menu = find("lu-menu");
  menu.addEventListener("keydown", press);
  menu.addEventListener("toggle", (event) => {
    if (event.newState === "closed" && (document.activeElement === document.body || menu.contains(document.activeElement)))
      opener?.focus({ preventScroll: true });
  });
}

function createItem({ icon: name, label, act, isChecked, isDanger }) {
  const isBox = isChecked !== undefined;
  return el(
    `button.lu-menu-item${isDanger ? ".lu-danger" : ""}`,
    {
      type: "button",
      role: isBox ? "menuitemcheckbox" : "menuitem",
      "aria-checked": isBox ? String(isChecked) : null,
      onclick: () => {
        find("lu-menu").hidePopover();
        act();
      },
    },
    isBox && !isChecked ? el("span.lu-icon") : icon(isBox ? "check" : name),
    label,
  );
}

/** Below the button where there is room, else above; never outside the window. */
function place(menu, anchor) {
  const { offsetWidth: width, offsetHeight: height } = menu;
  const below = anchor.bottom + GAP_PX;
  const top = below + height > innerHeight ? Math.max(GAP_PX, anchor.top - GAP_PX - height) : below;
  menu.style.top = `${top}px`;
  menu.style.left = `${Math.max(GAP_PX, Math.min(anchor.right - width, innerWidth - width - GAP_PX))}px`;
}

function press(event) {
  event.stopPropagation(); // letters and Escape mean this menu alone
  const items = [...find("lu-menu").querySelectorAll("button")];
  const here = items.findIndex((item) => item === document.activeElement);
  const next = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: -1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  items.at(next % items.length).focus();
}
