// A preset inside a link: JSON, compressed, in letters that every messenger leaves alone.

const MAX_CHARS = 64_000; // of JSON: a preset without its picture has a few hundred

export const PREFIX = "#recipe=";

/** The part of a link after the address. */
export async function packPreset(preset) {
  const { title, description, author, tags, licence, model } = preset;
  const recipe = Object.fromEntries(Object.entries(preset.recipe).filter(([, value]) => value !== null));
  const source = { title: model.title };
  const document = { schema: 1, title, description, author, tags, licence, recipe, source };
  const stream = new Blob([JSON.stringify(document)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const base64 = btoa(String.fromCharCode(...bytes));
  return PREFIX + base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The JSON in a link, unchecked; throws when there is none. Stops reading what unpacks to more than a preset. */
export async function unpackPreset(hash) {
  const base64 = hash.slice(PREFIX.length).replaceAll("-", "+").replaceAll("_", "/");
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    if (text.length > MAX_CHARS) {
      await reader.cancel();
      throw new Error("too long");
    }
  }
  return text;
}
