// Which language the page speaks: the browser's, until somebody chooses one. The choice is made in the page's head
// (studio/ui/catalogues.py); the cookie is for the login page, which the server writes.

import { language } from "./text.js";

const KEY = "lumesh.language";
const COOKIE = "lumesh-language";
const YEAR_S = 31_536_000;

function choose(name) {
  try {
    localStorage.setItem(KEY, name);
  } catch {
    return; // private mode: nothing would remember it over the reload
  }
  document.cookie = `${COOKIE}=${name}; Max-Age=${YEAR_S}; Path=/; SameSite=Lax`;
  location.reload(); // drafts and jobs outlive it
}

export function mountLanguage() {
  for (const select of document.querySelectorAll("select[data-languages]")) {
    select.value = language;
    select.addEventListener("change", () => choose(select.value));
  }
}
