// A small painted scene for each example, read off the prompt's words: time of day, place, subject and its colour.

/** @type {[RegExp, string[], string, string[]][]} */
const SKIES = [
  [/sunset|dusk|evening/, ["#3a2a5e", "#d9583b", "#ffb35c"], "#ffd58a", ["70%", "46%"]],
  [/sunrise|dawn|morning/, ["#7fb0d8", "#f5c3a8", "#ffe2b0"], "#fff3cf", ["22%", "42%"]],
  [/night|moon|stars/, ["#0b1030", "#1c2757", "#36447c"], "#e9ecff", ["74%", "18%"]],
  [/noon|day|sunny/, ["#4c9be0", "#8cc5f2", "#d5ecfb"], "#fffbe0", ["50%", "12%"]],
];
const PLAIN_SKY = [["#6d7f9c", "#a9b4c6", "#dcdfe6"], "#f7f4ea", ["66%", "28%"]];
/** @type {[RegExp, string, string][]} */
const GROUNDS = [
  [/ocean|sea|boat|beach|lake/, "#24506f", "0"],
  [/snow/, "#e6edf4", "60% 40% 0 0 / 70% 50% 0 0"],
  [/mountain/, "#4b5670", "50% 50% 0 0 / 100% 100% 0 0"],
  [/desert|cactus/, "#c98f52", "80% 20% 0 0 / 60% 40% 0 0"],
  [/city|street/, "#39404f", "0"],
  [/meadow|field|garden|poppy/, "#57813f", "30% 70% 0 0 / 40% 70% 0 0"],
];

const THINGS = {
  sailboat: "polygon(48% 0, 88% 72%, 54% 72%, 54% 78%, 100% 78%, 82% 100%, 18% 100%, 0 78%, 48% 78%, 48% 72%, 14% 72%)",
  lighthouse: "polygon(36% 0, 64% 0, 64% 14%, 58% 16%, 70% 100%, 30% 100%, 42% 16%, 36% 14%)",
  house: "polygon(50% 18%, 100% 54%, 90% 54%, 90% 100%, 10% 100%, 10% 54%, 0 54%)",
  cactus:
    "polygon(42% 0, 58% 0, 58% 44%, 72% 44%, 72% 20%, 84% 20%, 84% 56%, 58% 56%, 58% 100%, 42% 100%, 42% 68%, 16% 68%, 16% 32%, 28% 32%, 28% 56%, 42% 56%)",
  balloon: "polygon(50% 0, 78% 8%, 92% 30%, 86% 52%, 60% 80%, 60% 100%, 40% 100%, 40% 80%, 14% 52%, 8% 30%, 22% 8%)",
};
const COLOURS = {
  red: "#e0483e",
  blue: "#3f7fe0",
  yellow: "#f2c53d",
  green: "#3f9150",
  white: "#f4f4f0",
  purple: "#8a55c9",
  orange: "#f08a33",
};

/** The subject as a name of THINGS; null when the prompt has none of them. */
export const thingOf = (prompt) => Object.keys(THINGS).find((name) => prompt.toLowerCase().includes(name)) ?? null;

export function skyOf(prompt) {
  const words = prompt.toLowerCase();
  const [, colours, sun, place] = SKIES.find(([pattern]) => pattern.test(words)) ?? [null, ...PLAIN_SKY];
  const [, ground, hill] = GROUNDS.find(([pattern]) => pattern.test(words)) ?? [
    null,
    "#5a6b58",
    "60% 40% 0 0 / 50% 60% 0 0",
  ];
  return {
    "--sky": `linear-gradient(180deg, ${colours[0]}, ${colours[1]} 62%, ${colours[2]})`,
    "--sun": sun,
    "--sun-x": place[0],
    "--sun-y": place[1],
    "--ground": ground,
    "--hill": hill,
    "--thing": THINGS[thingOf(prompt)] ?? "none",
    "--thing-colour": COLOURS[Object.keys(COLOURS).find((name) => words.includes(name))] ?? "#2b2f3a",
  };
}
