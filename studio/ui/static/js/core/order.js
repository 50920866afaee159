// Answers in the order in which they were asked for: one that comes after a later one has nothing to tell any more.
// Not here: what events have overtaken (store.js).

/**
 * The same question, of which an overtaken answer resolves to the later one. For questions that are asked again and again.
 * @template {any[]} V
 * @template T
 * @param {(...values: V) => Promise<T>} read
 * @returns {(...values: V) => Promise<T>}
 */
export function inOrder(read) {
  let [asked, known] = [0, 0];
  let answer;
  return async (...values) => {
    asked += 1;
    const mine = asked;
    const found = await read(...values);
    if (mine > known) [known, answer] = [mine, found];
    return answer;
  };
}
