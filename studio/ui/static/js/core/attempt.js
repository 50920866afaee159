// Asking the server for a change that it may refuse: the reason stands where the person looks.

import { find, setText } from "./dom.js";
import { together } from "./text.js";

/** Does it, and writes why it failed into the element with the id `place`, which is emptied first. */
export async function attempt(place, act) {
  setText(find(place), "");
  try {
    await act();
  } catch (error) {
    setText(find(place), together(error.detail, error.advice));
  }
}
