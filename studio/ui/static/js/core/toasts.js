// Short messages that go by themselves, one at a time; one may offer to do something about what it says, and stays when
// the next one comes without an offer.

import { el, find } from "./dom.js";

const SHOWN_MS = 3200;
const OFFERED_MS = 9000; // long enough to read, decide and reach

/** `offer` is `{label, act}`. */
export function toast(text, offer = null) {
  const message = el("div.lu-toast", { data: offer ? { offers: "true" } : {} }, text);
  const act = () => {
    message.remove();
    offer.act();
  };
  if (offer) message.append(el("button.lu-toast-act", { type: "button", onclick: act }, offer.label));
  for (const other of find("lu-toasts").querySelectorAll(offer ? ".lu-toast" : ".lu-toast:not([data-offers])")) other.remove();
  find("lu-toasts").append(message);
  setTimeout(() => message.remove(), offer ? OFFERED_MS : SHOWN_MS);
}
