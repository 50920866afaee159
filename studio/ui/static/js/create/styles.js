// Styles: templates around the prompt. They are applied when a recipe is sent, so the recipe holds the whole prompt.

import { readStyles } from "../core/api.js";
import { named } from "../core/text.js";

let styles = [];

export async function loadStyles() {
  const found = await readStyles();
  styles = found.styles.map((style) => ({ ...style, title: named(style.title) }));
}

/** The demo models know few words: they are offered only the styles made of those. */
export const stylesFor = (model) => styles.filter((style) => style.fits_demo || !model.is_demo);

export const styleOf = (id) => styles.find((style) => style.id === id) ?? null;

export const styledPrompt = (style, prompt) =>
  style && prompt.trim() ? style.prompt.replace("{prompt}", () => prompt.trim()) : prompt;

export const styledNegative = (style, negative) =>
  style?.negative_prompt ? [negative, style.negative_prompt].filter((part) => part?.trim()).join(", ") : negative;
