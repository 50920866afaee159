// What a search found, as one long list of which only the parts that were looked at are here.
// The list begins at a cursor, so that what is made meanwhile moves nothing. Not here: anything visible.

import { findOutputs } from "../core/api.js";

const PAGE = 100;

let wanted = {};
let start = null; // the cursor of the list's beginning; null while the list is empty
let items = []; // sparse
let pending = new Set(); // numbers of pages on their way
let searches = 0;
let generation = 0; // pages that were asked for before the list changed fit it no more
/** @type {{ change: () => unknown, problem: (error: any) => unknown }} */
let tell = { change: () => undefined, problem: () => undefined };

/** `change()` follows every part that comes, `problem(error)` one that did not. */
export function mountOutputs(change, problem) {
  tell = { change, problem };
}

export const countOutputs = () => items.length;
export const outputAt = (index) => items[index];
export const indexOf = (id) => items.findIndex((output) => output?.id === id);
export const loadedOutputs = () => items.filter(Boolean);

/** What is known of an output: an answer may come after one that was asked for later. */
const latest = (output, known) => (known?.id === output.id && output.asked_ms < known.asked_ms ? known : output);

/** Starts over with other filters, or with what was made since. Resolves to whether this search is still the last. */
export async function search(filters) {
  searches += 1;
  const mine = searches;
  const found = await findOutputs({ ...filters, limit: PAGE });
  if (mine !== searches) return false;
  wanted = filters;
  start = found.start;
  const known = new Map(loadedOutputs().map((output) => [output.id, output]));
  items = found.outputs.map((output) => latest(output, known.get(output.id)));
  items.length = found.total;
  moved();
  return true;
}

/** Whether a search would begin and count as the list does. */
export async function isCurrent(filters) {
  const found = await findOutputs({ ...filters, limit: 1 });
  return found.total === items.length && found.outputs[0]?.id === items[0]?.id;
}

/** Fetches what is missing from `first` up to, not including, `end`. */
export function need(first, end) {
  const last = Math.min(end, items.length) - 1;
  for (let page = Math.floor(Math.max(0, first) / PAGE); page <= Math.floor(last / PAGE); page += 1) {
    const from = page * PAGE;
    if (isComplete(from) || pending.has(page)) continue;
    pending.add(page);
    fetchPage(page, from);
  }
}

function isComplete(from) {
  for (let index = from; index < Math.min(from + PAGE, items.length); index += 1) if (!items[index]) return false;
  return true;
}

async function fetchPage(page, from) {
  const mine = generation;
  try {
    const found = await findOutputs({ ...wanted, cursor: start, offset: from, limit: PAGE });
    if (mine !== generation) return;
    for (const [place, output] of found.outputs.entries())
      if (from + place < items.length) items[from + place] = latest(output, items[from + place]);
    tell.change();
  } catch (error) {
    if (mine === generation) tell.problem(error);
  } finally {
    if (mine === generation) pending.delete(page);
  }
}

/** The output at `index`, fetched when it has to be. */
export async function reach(index) {
  if (!items[index]) {
    const found = await findOutputs({ ...wanted, cursor: start, offset: index, limit: 1 });
    items[index] ??= found.outputs[0];
  }
  return items[index];
}

/** The place of an output of the list that was made at `created_at`, fetched when it has to be; -1 if it is not in it. */
export async function locate({ id, created_at }) {
  if (indexOf(id) >= 0 || start === null) return indexOf(id);
  const { total } = await findOutputs({ ...wanted, cursor: start, after: created_at, limit: 1 });
  const offset = Math.max(0, total - PAGE / 2); // several may have come in one second
  const found = await findOutputs({ ...wanted, cursor: start, offset, limit: PAGE });
  for (const [place, output] of found.outputs.entries()) items[offset + place] ??= output;
  return indexOf(id);
}

/** Takes outputs out of the list; returns what `putBack` needs. */
export function takeOut(ids) {
  const gone = new Set(ids);
  const taken = [];
  for (const [index, output] of items.entries()) if (output && gone.has(output.id)) taken.push({ index, output });
  for (const { index } of taken.toReversed()) items.splice(index, 1);
  moved();
  return { taken, of: wanted };
}

/** Puts them back where they were; false when the list is another one by now. */
export function putBack({ taken, of }) {
  if (of !== wanted) return false;
  for (const { index, output } of taken) items.splice(index, 0, output);
  moved();
  return true;
}

function moved() {
  generation += 1;
  pending = new Set();
  tell.change();
}

/** False where it is overtaken by what is known of the output already. */
export function replaceOutput(output) {
  const index = indexOf(output.id);
  if (index < 0) return true;
  if (latest(output, items[index]) !== output) return false;
  items[index] = output;
  tell.change();
  return true;
}
