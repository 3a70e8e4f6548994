// Item texts: the storage format of response items, JSON texts separated by commas. Only this module encodes and decodes it.
import type { ItemTexts } from "../../../actors/api/stored-responses.ts";

const COMMA = 0x2c;

export function itemTexts<Item extends { readonly id: string }>(items: readonly Item[]): ItemTexts {
  const written = items.map((item) => JSON.stringify(item));
  const length = written.reduce((sum, text) => sum + Buffer.byteLength(text) + 1, 0);
  // The buffer must not come from node's shared pool, because it may be transferred to another thread.
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

/** Returns the storage format of one serialised item. */
export function itemText(id: string, text: Uint8Array): ItemTexts {
  const texts = Buffer.allocUnsafeSlow(text.byteLength + 1);
  texts.set(text);
  texts[text.byteLength] = COMMA;
  return { ids: [id], texts, ends: Uint32Array.of(text.byteLength) };
}

/** Concatenates several lists of items. */
export function joinedItemTexts(lists: readonly ItemTexts[]): ItemTexts {
  const [only, ...more] = lists;
  if (only !== undefined && more.length === 0) return only;
  const ends: number[] = [];
  let length = 0;
  for (const list of lists) {
    for (const end of list.ends) ends.push(length + end);
    length += list.texts.byteLength;
  }
  return { ids: lists.flatMap(({ ids }) => ids), texts: joinedTexts(lists), ends: Uint32Array.from(ends) };
}

export function joinedTexts(lists: readonly Pick<ItemTexts, "texts">[]): Uint8Array<ArrayBuffer> {
  const length = lists.reduce((sum, { texts }) => sum + texts.byteLength, 0);
  const joined = new Uint8Array(length);
  let at = 0;
  for (const { texts } of lists) {
    joined.set(texts, at);
    at += texts.byteLength;
  }
  return joined;
}

/** Parses the items. They are not validated again, because they were validated on arrival. */
export function parsedItems<Item>({ texts }: Pick<ItemTexts, "texts">): readonly Item[] {
  const text = Buffer.from(texts.buffer, texts.byteOffset, texts.byteLength).toString();
  return JSON.parse(`[${text.slice(0, -1)}]`) as readonly Item[];
}
