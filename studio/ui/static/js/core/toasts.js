// Short messages that go by themselves, one at a time; one may offer to do something about what it says.

import { el, find } from "./dom.js";

const SHOWN_MS = 3200;
const OFFERED_MS = 9000; // long enough to read, decide and reach

/** `offer` is `{label, act}`. */
export function toast(text, offer = null) {
  const message = el("div.lu-toast", {}, text);
  const act = () => {
    message.remove();
    offer.act();
  };
  if (offer) message.append(el("button.lu-toast-act", { type: "button", onclick: act }, offer.label));
  find("lu-toasts").replaceChildren(message);
  setTimeout(() => message.remove(), offer ? OFFERED_MS : SHOWN_MS);
}
