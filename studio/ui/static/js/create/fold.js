// "More": the settings that have the model's defaults, folded, with what they are in one line. Whether it is open is this
// browser's choice. Not here: the fields inside (controls.js).

import { find, setText } from "../core/dom.js";
import { schedulerName } from "../core/format.js";
import { recall, remember } from "../core/memory.js";
import { t } from "../core/text.js";

const KEY = "lumesh.more";

export function mountFold() {
  const fold = find("lu-fold");
  fold.open = recall(KEY) === "open";
  // Before it opens or closes.
  fold.querySelector("summary").addEventListener("click", () => remember(KEY, fold.open ? "closed" : "open"));
}

export function drawFold({ steps, guidance_scale, scheduler }) {
  const facts = [
    t("bar.steps", { count: steps }),
    t("bar.guidance", { scale: guidance_scale }),
    schedulerName(scheduler),
  ];
  setText(find("lu-fold-facts"), facts.join(" · "));
}
