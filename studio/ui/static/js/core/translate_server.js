// What the server says (reasons, errors, advice) in the visitor's language. REST speaks English, to scripts as well;
// beside a text stands its code (`reason_said` beside `reason`), by which the catalogue knows it (pipelines/messages.py).

import { shapeName } from "./format.js";
import { named, serverMessages, write } from "./text.js";

const OF_SIZES = ["shape", "shapes", "what"]; // values that sentences about sizes have
const COUNTED = ["count", "limit"]; // written with the language's thousands, and what plurals go by
const SHAPE = /\b\d+x\d+(x\d+)?\b/g;

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

/** English is written anew as well, so that a size is "832 × 480, 33 frames" as elsewhere on the page. */
function tell(text, code) {
  return code?.code ? write(serverMessages[code.code] ?? code.code, valuesOf(code)) : text;
}

/** A value may be a sentence itself, or the name of what comes with Lumesh; numbers stay as they are, for plurals. */
const valuesOf = ({ code, values }) =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, valueOf(name, value, code)]));

function valueOf(name, value, code) {
  if (typeof value === "object") return tell("", value);
  if (COUNTED.includes(name) && typeof value === "number") return value;
  return OF_SIZES.includes(name) && !code.includes("--") ? sizesIn(value) : named(String(value)); // an option is typed as it is
}

/** A list has semicolons, because a video's size has a comma of its own. */
const sizesIn = (text) => text.split(", ").map((one) => one.replace(SHAPE, (shape) => shapeName(shape))).join("; ");
