// Short messages that go by themselves, one at a time.

import { el, find } from "./dom.js";

const SHOWN_MS = 3200;

export function toast(text) {
  const message = el("div.lu-toast", {}, text);
  find("lu-toasts").replaceChildren(message);
  setTimeout(() => message.remove(), SHOWN_MS);
}
