// What comes before the page can answer is not lost: typing and sending before the scripts are there, which the first
// script of the page keeps (studio/ui/first_script.py), and sending before the controls show a model.

let isWanted = false;
let isDrawn = false;

/** What was typed outside fields until now; from here on the keyboard is the page's. */
export function takeEarly() {
  const kept = window.lumeshEarly;
  if (!kept) return "";
  kept.stop();
  isWanted = kept.submits;
  return kept.text;
}

/** The controls show a model from here on: what is sent is what they say. */
export function noteDrawn() {
  isDrawn = true;
}

export const canSend = () => isDrawn;

export function sendLater() {
  isWanted = true;
}

/** Whether something is to be sent now that it can be; asked once. */
export function takeWanted() {
  const was = isWanted;
  isWanted = false;
  return was;
}
