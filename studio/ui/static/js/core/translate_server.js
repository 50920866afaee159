// What the server says (reasons, errors, advice) in the visitor's language. REST speaks English, to scripts as well;
// beside a text stands its code (`reason_said` beside `reason`), by which the catalogue knows it (pipelines/messages.py).

import { named, serverMessages, write } from "./text.js";

/**
 * A field of an answer in the visitor's language; a text without a code, or whose code is not known, stays English.
 * @param {any} record
 * @param {string} field
 */
export const said = (record, field) => tell(record?.[field] ?? "", record?.[`${field}_said`]);

/**
 * The sentences of a field that is a list.
 * @param {any} record
 * @param {string} field
 */
export const saidList = (record, field) =>
  (record[field] ?? []).map((text, place) => tell(text, record[`${field}_said`]?.[place]));

/** An error's or a card's words. */
export const saidCard = (card) =>
  card && { ...card, title: said(card, "title"), detail: said(card, "detail"), advice: said(card, "advice") };

/** What is wrong with each field of a recipe. */
export const saidFields = ({ fields = {}, fields_said = {} }) =>
  Object.fromEntries(Object.entries(fields).map(([field, text]) => [field, tell(text, fields_said[field])]));

function tell(text, code) {
  const message = code && serverMessages[code.code];
  return message ? write(message, valuesOf(code.values)) : text;
}

/** A value may be a sentence itself, or the name of what comes with Lumesh; numbers stay as they are, for plurals. */
const valuesOf = (values) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, valueOf(name, value)]));

function valueOf(name, value) {
  if (typeof value === "object") return tell(write(value.code, valuesOf(value.values)), value);
  return name === "count" && typeof value === "number" ? value : named(String(value));
}
