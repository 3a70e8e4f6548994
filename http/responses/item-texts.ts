// Item texts: the items of a response as the store keeps and gives them, JSON texts one behind the other. Pure, and the only place
// that writes or reads them.
import type { ItemTexts } from "../../actors/stored-responses.ts";

const COMMA = 0x2c;

export function itemTexts<Item extends { readonly id: string }>(items: readonly Item[]): ItemTexts {
  const written = items.map((item) => JSON.stringify(item));
  const length = written.reduce((sum, text) => sum + Buffer.byteLength(text) + 1, 0);
  // A buffer of its own: it may move to another thread.
  const texts = Buffer.allocUnsafeSlow(length);
  const ends = new Uint32Array(items.length);
  let at = 0;
  for (const [i, text] of written.entries()) {
    at += texts.write(text, at);
    ends[i] = at;
    texts[at++] = COMMA;
  }
  return { ids: items.map(({ id }) => id), texts, ends };
}

/** The items that the texts are of; they have been checked when they came. */
export function parsedItems<Item>({ texts }: Pick<ItemTexts, "texts">): readonly Item[] {
  const text = Buffer.from(texts.buffer, texts.byteOffset, texts.byteLength).toString();
  return JSON.parse(`[${text.slice(0, -1)}]`) as readonly Item[];
}
