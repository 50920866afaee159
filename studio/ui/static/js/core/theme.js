// Light or dark: the system's choice until somebody makes one. The first paint is set by a line in the page's head.

import { find, setIcon } from "./dom.js";
import { recall, remember } from "./memory.js";
import { t } from "./text.js";

const KEY = "lumesh.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

const chosen = () => recall(KEY);

function apply(theme) {
  document.documentElement.dataset.theme = theme;
  document.body.classList.toggle("dark", theme === "dark"); // Gradio's own word, for its messages
  const button = find("lu-theme");
  setIcon(button, theme === "dark" ? "sun" : "moon");
  button.setAttribute("aria-label", t(theme === "dark" ? "theme.light" : "theme.dark"));
}

export const isDark = () => document.documentElement.dataset.theme === "dark";

export function toggleTheme() {
  const theme = isDark() ? "light" : "dark";
  remember(KEY, theme);
  apply(theme);
}

export function mountTheme() {
  find("lu-theme").addEventListener("click", toggleTheme);
  const follow = () => apply(chosen() ?? (system.matches ? "dark" : "light"));
  system.addEventListener("change", follow);
  follow();
}
