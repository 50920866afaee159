// Short messages that go by themselves, one at a time, when there was time to read them; one may offer to do something
// about what it says, and stays when the next one comes without an offer.

import { el, find } from "./dom.js";

const SHOWN_MS = 3200;
const OFFERED_MS = 9000; // long enough to read, decide and reach
const LETTER_MS = 60; // of somebody who reads slowly
const LETTERS_OF_SIGN = 3; // a Chinese character says as much

/** How long it takes to notice and read a text. */
const readingTime = (text) => 1500 + LETTER_MS * text.replace(/\p{Script=Han}/gu, "-".repeat(LETTERS_OF_SIGN)).length;

/**
 * Returns what takes the message away before its time.
 * @param {...{label: string, act: () => void}} offers
 */
export function toast(text, ...offers) {
  const hasOffers = offers.length > 0;
  const message = el("div.lu-toast", { data: hasOffers ? { offers: "true" } : {} }, text);
  for (const { label, act } of offers) {
    const onclick = () => {
      message.remove();
      act();
    };
    message.append(el("button.lu-toast-act", { type: "button", onclick }, label));
  }
  for (const other of find("lu-toasts").querySelectorAll(hasOffers ? ".lu-toast" : ".lu-toast:not([data-offers])")) other.remove();
  find("lu-toasts").append(message);
  setTimeout(() => message.remove(), Math.max(hasOffers ? OFFERED_MS : SHOWN_MS, readingTime(text)));
  return () => message.remove();
}
