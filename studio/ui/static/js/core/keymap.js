// The keyboard, once: which key does what on which view. Handlers ask `means` or `actionOf`; the help lists these rows,
// each with what it does from the catalogue (`key.<id>`).

const ALL = ["create", "train", "gallery", "presets", "system"];

/** Rows in the order of the help; `keys` are as the browser names them, modifiers in front. */
export const KEYMAP = [
  { id: "generate", on: ["create"], keys: ["Ctrl+Enter"] },
  { id: "learn", on: ["train"], keys: ["Ctrl+Enter"] },
  { id: "prompt", on: ["create"], keys: ["/"] },
  { id: "newer", on: ["create"], keys: ["ArrowLeft"] },
  { id: "older", on: ["create"], keys: ["ArrowRight"] },
  { id: "zoom", on: ["create", "gallery"], keys: ["z"] },
  { id: "nearer", on: ["create", "gallery"], keys: ["+", "="] },
  { id: "farther", on: ["create", "gallery"], keys: ["-"] },
  { id: "download", on: ["create"], keys: ["d"] },
  { id: "settings", on: ["create"], keys: ["u"] },
  { id: "input", on: ["create"], keys: ["i"] },
  { id: "recipe", on: ["create"], keys: ["r"] },
  { id: "copy", on: ["create"], keys: ["c"] },
  { id: "star", on: ["create"], keys: ["f"] },
  { id: "save", on: ["create"], keys: ["p"] },
  { id: "grid", on: ["create"], keys: ["x"] },
  { id: "search", on: ["gallery", "presets"], keys: ["/"] },
  { id: "walk", on: ["gallery"], keys: ["ArrowLeft", "ArrowUp", "ArrowDown", "ArrowRight"] },
  { id: "pan", on: ["create", "gallery"], keys: ["ArrowLeft", "ArrowUp", "ArrowDown", "ArrowRight"] }, // of what is enlarged
  { id: "open", on: ["gallery"], keys: ["Enter"] },
  { id: "favourite", on: ["gallery"], keys: ["f"] },
  { id: "select", on: ["gallery"], keys: ["x"] },
  { id: "trash", on: ["create", "gallery"], keys: ["Delete", "Backspace"] },
  { id: "jobUp", on: ALL, keys: ["Alt+ArrowUp"] },
  { id: "jobDown", on: ALL, keys: ["Alt+ArrowDown"] },
  { id: "train", on: ALL, keys: ["n"] },
  { id: "gallery", on: ALL, keys: ["l"] },
  { id: "presets", on: ALL, keys: ["g"] },
  { id: "system", on: ALL, keys: ["s"] },
  { id: "theme", on: ALL, keys: ["t"] },
  { id: "back", on: ALL, keys: ["Escape"] },
  { id: "help", on: ALL, keys: ["?"] },
];

const ROW_OF = new Map(KEYMAP.map((row) => [row.id, row]));

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
const NAMES = {
  ArrowLeft: "←",
  ArrowRight: "→",
  ArrowUp: "↑",
  ArrowDown: "↓",
  Escape: "Esc",
  Delete: "Del",
  Ctrl: isMac ? "⌘" : "Ctrl",
  Alt: isMac ? "⌥" : "Alt",
};

function pressed(event) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  return `${event.ctrlKey || event.metaKey ? "Ctrl+" : ""}${event.altKey ? "Alt+" : ""}${key}`;
}

/** Whether this key is the one for `id`. */
export const means = (event, id) => ROW_OF.get(id).keys.includes(pressed(event));

/** The id of what this key does on a view; undefined when it does nothing there. */
export function actionOf(event, view) {
  const key = pressed(event);
  return KEYMAP.find((row) => row.on.includes(view) && row.keys.includes(key))?.id;
}

/** A row's keys as they stand on a keyboard: [["Ctrl", "Enter"]], one list for each way. */
export const keycaps = ({ keys }) => keys.map((key) => key.split(/(?<=.)\+/).map(capOf));

/** One key as this keyboard names it. */
export const capOf = (name) => NAMES[name] ?? (name.length === 1 ? name.toUpperCase() : name);
