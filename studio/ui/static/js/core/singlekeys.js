// Whether single keys, without Ctrl or Alt, act as shortcuts (WCAG 2.1.4): this browser's choice, made under Help.

import { recall, remember } from "./memory.js";

const KEY = "lumesh.singleKeys";
const OFF = "off";

let areOn = recall(KEY) !== OFF;

export const singleKeysOn = () => areOn;

export function setSingleKeys(are) {
  areOn = are;
  remember(KEY, are ? "on" : OFF);
}
