// Files that were left out, each with why: a list at the place where they were given. It stays until others are given
// there, or somebody puts it away.

import { el, icon, keyed, setText } from "./dom.js";
import { sentence } from "./format.js";
import { locale, t } from "./text.js";

const SHOWN = 5; // names of a reason, and reasons

const lists = new Intl.ListFormat(locale);

/** The list in `place`, an empty element of its own. */
export function makeLeftOut(place) {
  /** @type {Map<string, string[]>} */
  const reasons = new Map(); // why -> the files' names
  const title = el("p.lu-left-title", {});
  const list = el("ul.lu-left-list", { role: "list" });
  const clear = () => {
    reasons.clear();
    draw();
  };
  const close = el("button.lu-icon-button", { type: "button", "aria-label": t("common.dismiss"), onclick: clear }, icon("close"));
  place.setAttribute("role", "status");
  place.setAttribute("aria-atomic", "false"); // each file is told once
  place.append(title, close, list);
  draw();

  function draw() {
    const count = [...reasons.values()].reduce((sum, names) => sum + names.length, 0);
    place.hidden = !count;
    setText(title, count ? t("leftOut.title", { count }) : "");
    const shown = [...reasons].slice(0, SHOWN).map(([why, names]) => ({ why, text: t("common.named", { name: namesOf(names), value: sentence(why) }) }));
    const rest = [...reasons.values()].slice(SHOWN).reduce((sum, names) => sum + names.length, 0);
    if (rest) shown.push({ why: "", text: sentence(t("leftOut.more", { count: rest })) });
    keyed(list, shown, { key: ({ why }) => why, create: () => el("li", {}), update: (line, { text }) => setText(line, text) });
  }

  return {
    clear,
    add(name, why) {
      reasons.set(why, [...(reasons.get(why) ?? []), name]);
      draw();
    },
  };
}

function namesOf(names) {
  const shown = names.slice(0, SHOWN).map((name) => `“${name}”`);
  return lists.format(names.length > SHOWN ? [...shown, t("leftOut.more", { count: names.length - SHOWN })] : shown);
}
