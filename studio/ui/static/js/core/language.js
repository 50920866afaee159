// Which language the page speaks: the browser's, until somebody chooses one. The choice is made in the page's head
// (studio/ui/catalogues.py); the cookie is for the login page, which the server writes.

import { find } from "./dom.js";
import { remember } from "./memory.js";
import { language } from "./text.js";

const KEY = "lumesh.language";
const COOKIE = "lumesh-language";
const YEAR_S = 31_536_000;

export function chooseLanguage(name) {
  if (!remember(KEY, name)) return; // nothing would remember it over the reload
  document.cookie = `${COOKIE}=${name}; Max-Age=${YEAR_S}; Path=/; SameSite=Lax`;
  location.reload(); // drafts and jobs outlive it
}

/** [{id, name}], each called as it calls itself. */
export const languages = () => [...find("lu-language").options].map(({ value, text }) => ({ id: value, name: text }));

export function mountLanguage() {
  const select = find("lu-language");
  select.value = language;
  select.addEventListener("change", () => chooseLanguage(select.value));
}
