// Answers and events as values. Seeds have 63 bits, of which a number here is exact only up to 2^53.

/** Longer seeds become text, which the server takes back as it is. In a text of somebody the quotes stand escaped. */
export const parseJson = (text) => JSON.parse(text.replace(/"seed":\s*(\d{16,})/g, '"seed":"$1"'));
