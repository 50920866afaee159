// What this browser remembers from visit to visit. Where it may not, in private mode or when it is full, everything
// lasts as long as the page.

/** The text under a key; null when there is none. */
export function recall(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** The value that was remembered as JSON; `otherwise` when there is none, or none that can be read. */
export function recallJson(key, otherwise) {
  try {
    return JSON.parse(recall(key) ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** Returns whether it will be remembered. */
export function remember(key, text) {
  try {
    localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}
