// What a card of the queue says of its job: of a family, jobs whose prompts begin alike, first what tells them apart.
// Pure. Not here: the card, whose tooltip has the whole prompt (queue.js).

import { axisText } from "../core/axes.js";
import { settingsOf } from "../core/settings.js";
import { t } from "../core/text.js";

const SEEN = 20; // letters of a prompt that fit into a card; what differs before them is seen anyway
const WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{M}\p{N}_'’-]+/gu; // Chinese has no spaces

/** What a job is called where it stands alone: its prompt, or that it trains something. */
export const nameOf = (job) => (job.title ? t("train.card", { name: job.title }) : job.recipe.prompt);

/** job id -> title. */
export function titlesOf(all) {
  const titles = new Map();
  for (const job of all) if (job.title) titles.set(job.id, nameOf(job));
  const made = all.filter((job) => !job.title);
  for (const { id, sheet, recipe } of made.filter((job) => job.sheet)) titles.set(id, [...axesOf(sheet), recipe.prompt].join(" · "));
  for (const family of groupBy(made.filter((job) => !job.sheet), ({ recipe }) => recipe.prompt.slice(0, SEEN))) {
    const ofPrompt = groupBy(family, ({ recipe }) => recipe.prompt);
    const words = differingWords(ofPrompt.map(([job]) => job.recipe.prompt));
    ofPrompt.forEach((same, place) => {
      const settings = differingSettings(same);
      same.forEach((job, index) => {
        titles.set(job.id, [words[place], settings[index], job.recipe.prompt].filter(Boolean).join(" · "));
      });
    });
  }
  return titles;
}

const axesOf = ({ grid }) => [grid.x, grid.y, grid.z].map(axisText).filter(Boolean);

function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return [...groups.values()];
}

/** Of each prompt the words that not all of them have: "A boat at dawn, oil" of such boats may be "dawn … oil". */
function differingWords(prompts) {
  const read = prompts.map((prompt) => [...prompt.matchAll(WORD)]);
  const sets = read.map((words) => new Set(words.map(([word]) => word)));
  return read.map((words, place) => {
    const runs = [];
    let last = -2;
    words.forEach((word, index) => {
      if (sets.every((set) => set.has(word[0]))) return;
      const end = word.index + word[0].length;
      if (last === index - 1) runs.at(-1)[1] = end;
      else runs.push([word.index, end]);
      last = index;
    });
    return runs.map(([start, end]) => prompts[place].slice(start, end)).join(" … ");
  });
}

/** Of each job, all of one prompt, the settings that not all of them share: "Seed: 42 · Steps: 8". */
function differingSettings(jobs) {
  const known = jobs.every(({ recipe }) => recipe.images && recipe.loras); // the server has answered
  if (jobs.length < 2 || !known) return jobs.map(() => "");
  const lists = jobs.map(({ recipe }) => settingsOf({ recipe, seed: recipe.seed }));
  const values = groupBy(lists.flat(), ({ id }) => id);
  const differ = new Set(
    values.filter((all) => all.length < jobs.length || new Set(all.map(({ value }) => value)).size > 1).map(([{ id }]) => id),
  );
  return lists.map((settings) =>
    settings
      .filter(({ id }) => differ.has(id))
      .map(({ name, value }) => t("common.named", { name, value }))
      .join(" · "),
  );
}
