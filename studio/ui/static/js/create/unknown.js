// Words that a small model never learnt, with examples of what it can draw: while somebody types, and beside the result.
// Not here: finding them (pipelines/prompts/words.py), when to ask (reading.js, canvas/lacking.js).

import { el } from "../core/dom.js";
import { t, together } from "../core/text.js";
import { makeChip } from "./examples.js";

const quoted = (words) => words.map((word) => t("unknown.quoted", { word })).join(t("unknown.comma"));

const unknownText = ({ words }) => t("unknown.words", { words: quoted(words) });

/** `place` becomes one line of text and a chip for each example on offer, or hides. */
export function drawUnknown(place, unknown, model, run) {
  const key = unknown ? JSON.stringify([model.id, unknown]) : "";
  place.hidden = !unknown;
  if (place.dataset.shown === key) return;
  place.dataset.shown = key;
  if (!unknown) return place.replaceChildren();
  const offers = unknown.offers.map((index) => model.examples[index]).filter(Boolean);
  place.replaceChildren(
    el("p", {}, together(unknownText(unknown), offers.length ? t("unknown.offers") : "")),
    el("div.lu-unknown-offers", {}, ...offers.map((example) => makeChip(example, run))),
  );
  return undefined;
}
