// Elements without innerHTML: whatever people typed only ever becomes text.

const SVG = "http://www.w3.org/2000/svg";

/** @type {Find} */
export const find = (id) => document.getElementById(id);

/** What the keyboard is at. */
export const focused = () => /** @type {HTMLElement | null} */ (document.activeElement);

/**
 * el("button.lu-button", {title: "x", onclick}, "text", child…); `data` and `style` take objects, null children vanish.
 * @template {string} S
 * @param {S} selector
 * @param {Record<string, any>} attributes
 * @param {...any} children
 * @returns {Selected<S>}
 */
export function el(selector, attributes = {}, ...children) {
  const [tag, ...classes] = selector.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "data") Object.assign(element.dataset, value);
    else if (name === "style") setStyles(element, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return /** @type {any} */ (element);
}

/** Has the browser save what is at an address, under the name that the server gives it. */
export function saveFile(href) {
  const link = el("a", { href, download: "" });
  document.body.append(link);
  link.click();
  link.remove();
}

export function setStyles(element, styles) {
  for (const [name, value] of Object.entries(styles)) element.style.setProperty(name, value);
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "lu-icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#lu-i-${name}`);
  svg.append(use);
  return svg;
}

export function setIcon(button, name) {
  button.querySelector("use").setAttribute("href", `#lu-i-${name}`);
}

/** Sets text only when it differs, so that live regions speak once and selections survive. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Children of `parent` become one element per item, in order; elements are kept by key, so focus and images stay.
 * @template T
 * @param {HTMLElement} parent
 * @param {T[]} items
 * @param {{
 *   key: (item: NoInfer<T>) => any,
 *   create: (item: NoInfer<T>) => HTMLElement,
 *   update?: (child: any, item: NoInfer<T>) => void,
 * }} how
 */
export function keyed(parent, items, { key, create, update }) {
  const names = new Set(items.map((item) => String(key(item))));
  const kept = new Map();
  for (const child of /** @type {HTMLElement[]} */ ([...parent.children]))
    if (names.has(child.dataset.key)) kept.set(child.dataset.key, child);
    else child.remove(); // now: while it is there, those behind it would be moved, and lose the focus
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = kept.get(name);
    kept.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update?.(child, item);
  }
}

/** Arrow keys inside a radio group of buttons. */
export function arrowsChoose(group) {
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const buttons = [...group.querySelectorAll("[role=radio]")];
    const next = buttons[(buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length];
    next.focus();
    next.click();
  });
}
