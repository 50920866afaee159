// The clipboard, also where browsers have none.

import { el } from "./dom.js";

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // The clipboard needs https or localhost; a page on the local network has neither.
    const area = el("textarea", { style: { position: "fixed", opacity: "0" } });
    area.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(area); // what is outside cannot be selected
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
