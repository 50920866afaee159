// What the page says, by id, in the visitor's language. The page's head chose it and asked for its catalogue
// (studio/ui/catalogues.py); every module that imports this one waits for it, so `t` works from their first line on.

const { name, tag, messages, server, shipped } = await globalThis.lumeshText;

const baseOf = (one) => one.split("-")[0].toLowerCase();

/** "en" or "zh", as the catalogues are called. */
export const language = name;

/** For numbers and dates: "en-GB" rather than "en" where the browser says so. */
export const locale = navigator.languages.find((one) => baseOf(one) === baseOf(tag)) ?? tag;

/** What the server says, by its code: the English sentence with `{names}`. English itself needs none. */
export const serverMessages = server;

const names = new Map(Object.entries(shipped));

/** A title, text or tag of what comes with Lumesh; what it does not know, as somebody's own, stays as it is. */
export const named = (text) => names.get(text) ?? text;

const plurals = new Intl.PluralRules(locale);
const numbers = new Intl.NumberFormat(locale);

/** t("queue.waiting", {count: 3}) is "3 waiting". Numbers are written as people write them; pass a seed as a string. */
export const t = (id, values = {}) => write(messages[id] ?? id, values);

export const has = (id) => id in messages;

/** A message with its values; `count` chooses between plural forms. */
export function write(message, values) {
  const form = typeof message === "string" ? message : (message[plurals.select(values.count)] ?? message.other);
  return form.replace(/\{(\w+)\}/g, (whole, value) => (value in values ? show(values[value]) : whole));
}

const show = (value) => (typeof value === "number" ? numbers.format(value) : value);

/** Sentences after one another; after a full-width sign there is no space. */
export const together = (...sentences) => sentences.filter(Boolean).join(" ").replace(/(?<=[。；：，！？]) /g, "");
