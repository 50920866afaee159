// The panels in the visitor's language, as soon as they stand and before they are seen. They come in English.

import { whenPanelsStand } from "./panels.js";
import { language, t } from "./text.js";

const ENGLISH = "en";
const ATTRIBUTES = ["title", "aria-label", "placeholder", "alt"];

function translate(root) {
  for (const element of root.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
  for (const name of ATTRIBUTES)
    for (const element of root.querySelectorAll(`[data-text-${name}]`)) {
      const key = name === "title" && element.dataset.key ? `  ${element.dataset.key}` : "";
      element.setAttribute(name, t(element.getAttribute(`data-text-${name}`)) + key);
    }
}

whenPanelsStand(() => {
  if (language !== ENGLISH) translate(document.getElementById("studio"));
  delete document.documentElement.dataset.text; // the style sheet hides what is not translated yet
});
