// Item list: the items of one stored response. An index finds an item by position or id without reading the texts. The index
// contains, in this order: the end offset of each text, the end offset of each id, the positions sorted by id, and the ids.
import { ServerError } from "../../runtime/errors.ts";
import type { Reading } from "../../runtime/store/store.ts";
import type { ItemPage, ItemTexts, PageRequest, Span } from "../api/stored-responses.ts";

const INT_BYTES = 4;

export type ReadBytes = (from: number, to: number) => Reading<Uint8Array>;

export function indexOf({ ids, ends }: ItemTexts): Uint8Array {
  const names = ids.map((id) => Buffer.from(id));
  const shown = names.map(String);
  const places = ids.map((_, place) => place).sort((one, other) => compareIds(shown, one, other));
  let end = 0;
  const nameEnds = names.map((name) => {
    end += name.byteLength;
    return end;
  });
  return Buffer.concat([integers(ends), integers(nameEnds), integers(places), ...names]);
}

export class ItemList {
  readonly count: number;
  readonly #texts: number;
  readonly #index: ReadBytes;

  /** `texts`: id of the stored part that contains the texts. */
  constructor(count: number, texts: number, index: ReadBytes) {
    this.count = count;
    this.#texts = texts;
    this.#index = index;
  }

  /** Returns a page of the items. Throws invalid_value if no item has the id in `after`. */
  async page({ order, after, limit }: PageRequest): Promise<ItemPage> {
    const isAscending = order === "asc";
    const place = after === null ? null : await this.find(after, isAscending ? "first" : "last");
    if (after !== null && place === null) throw unknownItem(after);
    const first = isAscending ? (place ?? -1) + 1 : (place ?? this.count) - 1;
    const room = isAscending ? this.count - first : first + 1;
    const count = Math.min(limit, room);
    if (count === 0) return { spans: [], firstId: null, lastId: null, hasMore: false };
    const last = isAscending ? first + count - 1 : first - count + 1;
    const spans = await (isAscending ? this.#ascending(first, last) : this.#descending(first, last));
    return { spans, firstId: await this.#id(first), lastId: await this.#id(last), hasMore: room > count };
  }

  /** Returns the byte ranges of the first item with an id; null = no such item. */
  async item(id: string): Promise<readonly Span[] | null> {
    const place = await this.find(id, "first");
    return place === null ? null : await this.#ascending(place, place);
  }

  /** Returns the end offsets of all texts. */
  async ends(): Promise<Uint32Array> {
    const bytes = await this.#index(0, this.count * INT_BYTES);
    return Uint32Array.from({ length: this.count }, (_, i) => integerAt(bytes, i));
  }

  async ids(): Promise<readonly string[]> {
    const ends = await this.#index(this.count * INT_BYTES, 2 * this.count * INT_BYTES);
    const end = this.count === 0 ? 0 : integerAt(ends, this.count - 1);
    const text = Buffer.from(await this.#index(this.#namesAt, this.#namesAt + end));
    const from = (i: number): number => (i === 0 ? 0 : integerAt(ends, i - 1));
    return Array.from({ length: this.count }, (_, i) => text.toString("utf8", from(i), integerAt(ends, i)));
  }

  /** Returns the position of the first or last item with an id; null = no such item. */
  async find(asked: string, which: "first" | "last"): Promise<number | null> {
    // Encoded like the stored ids: UTF-8 replaces lone surrogates.
    const id = Buffer.from(asked).toString();
    // Binary search in the positions sorted by id.
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >>> 1;
      const found = await this.#id(await this.#sorted(middle));
      if (found < id || (which === "last" && found === id)) low = middle + 1;
      else high = middle;
    }
    const at = which === "first" ? low : low - 1;
    if (at < 0 || at >= this.count) return null;
    const place = await this.#sorted(at);
    return (await this.#id(place)) === id ? place : null;
  }

  async #ascending(first: number, last: number): Promise<readonly Span[]> {
    const ranges = await this.#ranges(first, last);
    return [{ part: this.#texts, from: ranges[0]?.[0] ?? 0, to: ranges.at(-1)?.[1] ?? 0 }];
  }

  async #descending(first: number, last: number): Promise<readonly Span[]> {
    const ranges = await this.#ranges(last, first);
    // Each text except the last one of the page includes the comma that follows it.
    return ranges.map(([from, end], i) => ({ part: this.#texts, from, to: i === 0 ? end : end + 1 })).reverse();
  }

  /** Returns the byte ranges of the texts from position `first` to `last`, without their commas. */
  async #ranges(first: number, last: number): Promise<readonly (readonly [from: number, to: number])[]> {
    // A text begins where the previous one ends, so the end of the text before `first` is read too.
    const skipped = Math.max(0, first - 1);
    const ends = await this.#index(skipped * INT_BYTES, (last + 1) * INT_BYTES);
    return Array.from({ length: last - first + 1 }, (_, i) => {
      const at = first - skipped + i;
      return [at === 0 ? 0 : integerAt(ends, at - 1) + 1, integerAt(ends, at)];
    });
  }

  async #id(place: number): Promise<string> {
    const from = place === 0 ? 0 : await this.#integer(this.count + place - 1);
    const name = await this.#index(this.#namesAt + from, this.#namesAt + (await this.#integer(this.count + place)));
    return Buffer.from(name).toString();
  }

  get #namesAt(): number {
    return 3 * this.count * INT_BYTES;
  }

  async #sorted(at: number): Promise<number> {
    return await this.#integer(2 * this.count + at);
  }

  async #integer(at: number): Promise<number> {
    return integerAt(await this.#index(at * INT_BYTES, (at + 1) * INT_BYTES), 0);
  }
}

function unknownItem(id: string): ServerError {
  const text = `after: expected the id of an input item of this response, got ${JSON.stringify(id)}`;
  return new ServerError("invalid_value", text, { param: "after" });
}

function compareIds(ids: readonly string[], one: number, other: number): number {
  const [a, b] = [ids[one] as string, ids[other] as string];
  if (a === b) return one - other;
  return a < b ? -1 : 1;
}

function integers(values: Uint32Array | readonly number[]): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(values.length * INT_BYTES));
  for (let i = 0; i < values.length; i++) bytes.setUint32(i * INT_BYTES, values[i] as number, true);
  return new Uint8Array(bytes.buffer);
}

function integerAt(bytes: Uint8Array, at: number): number {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(at * INT_BYTES, true);
}
