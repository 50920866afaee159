// Whether single keys, without Ctrl or Alt, act as shortcuts (WCAG 2.1.4): this browser's choice, made under Help.

const KEY = "lumesh.singleKeys";
const OFF = "off";

let areOn = read() !== OFF;

function read() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export const singleKeysOn = () => areOn;

export function setSingleKeys(are) {
  areOn = are;
  try {
    localStorage.setItem(KEY, are ? "on" : OFF);
  } catch {
    // Private mode: it lasts until the next refresh.
  }
}
