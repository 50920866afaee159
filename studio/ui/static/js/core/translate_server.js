// What the server says (reasons, errors, advice) in the visitor's language. REST speaks English, to scripts as well; the
// catalogue knows the usual messages by their English text, and what it does not know stays as it is.

import { named, serverMessages, together, write } from "./text.js";

const MAX_KEPT = 500;

const rules = serverMessages.map(([english, message]) => ({ pattern: patternOf(english), message }));
const kept = new Map(); // the same few lines are drawn again and again

/** "{count} of your jobs" as what matches it: a count is digits, anything else what stands there. */
function patternOf(english) {
  const source = english
    .replace(/[.*+?^$()|[\]\\]/g, "\\$&")
    .replace(/\{(\w+)\}/g, (_, name) => (name === "count" ? "(?<count>\\d[\\d,]*)" : `(?<${name}>.+?)`));
  return new RegExp(`^${source}$`, "s");
}

/** A message as a whole, or else its sentences one by one. */
export function said(text) {
  if (!text || !rules.length) return text;
  if (!kept.has(text)) {
    if (kept.size >= MAX_KEPT) kept.clear();
    kept.set(text, tell(text));
  }
  return kept.get(text);
}

const tell = (text) => whole(text) ?? together(...text.split(/(?<=[.;]) /).map(part));

function part(text) {
  const [, words, end] = /^(.*?)(;?)$/s.exec(text);
  const found = whole(words);
  return found === null ? text : found + end;
}

function whole(text) {
  for (const { pattern, message } of rules) {
    const found = pattern.exec(text);
    if (found) return write(message, valuesOf(found.groups ?? {}));
  }
  return null;
}

/** A value may be a message itself ("prompts", in "stands for 9 prompts"), or the name of what comes with Lumesh. */
const valuesOf = (groups) =>
  Object.fromEntries(
    Object.entries(groups).map(([name, value]) => [
      name,
      name === "count" ? Number(value.replaceAll(",", "")) : named(tell(value)),
    ]),
  );

/** An error's or a card's words. */
export const saidCard = (card) =>
  card && { ...card, title: said(card.title), detail: said(card.detail), advice: said(card.advice) };

export const saidFields = (fields) =>
  Object.fromEntries(Object.entries(fields).map(([field, message]) => [field, said(message)]));
