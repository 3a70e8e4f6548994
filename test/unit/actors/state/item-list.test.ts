import assert from "node:assert/strict";
import { describe, it } from "node:test";
import * as fc from "fast-check";
import type { ItemPage } from "../../../../actors/api/stored-responses.ts";
import { ItemList, indexOf } from "../../../../actors/state/item-list.ts";
import { itemTexts, parsedItems } from "../../../../http/responses/request/item-texts.ts";
import { ServerError } from "../../../../runtime/errors.ts";

interface Item {
  readonly id: string;
  readonly text: string;
}

interface Listed {
  readonly list: ItemList;
  readonly texts: Uint8Array;
  /** Number of bytes read from the index so far. */
  readBytes(): number;
}

function listed(items: readonly Item[]): Listed {
  const texts = itemTexts(items);
  const index = indexOf(texts);
  let read = 0;
  const list = new ItemList(items.length, 7, (from, to) => {
    read += to - from;
    return index.subarray(from, to);
  });
  return { list, texts: texts.texts, readBytes: () => read };
}

function shown({ spans }: ItemPage, texts: Uint8Array): readonly Item[] {
  const text = spans.map(({ from, to }) => Buffer.from(texts.subarray(from, to)).toString()).join("");
  return JSON.parse(`[${text}]`);
}

const anyItems = fc.array(
  fc.record(
    { id: fc.oneof(fc.constantFrom("a", "b", "msg_1"), fc.string({ unit: "grapheme" })), text: fc.string() },
    { noNullPrototype: true },
  ),
  { maxLength: 40 },
);

describe("a list of stored items", () => {
  it("is restored unchanged", () => {
    return fc.assert(
      fc.asyncProperty(anyItems, async (items) => {
        const { list, texts } = listed(items);
        assert.deepEqual(parsedItems<Item>({ texts }), items);
        assert.deepEqual(
          [await list.ids(), [...(await list.ends())]],
          [items.map(({ id }) => id), [...itemTexts(items).ends]],
        );
      }),
    );
  });

  it("returns the same pages as its items would, in both orders", () => {
    const query = fc.record({
      order: fc.constantFrom("asc" as const, "desc" as const),
      limit: fc.integer({ min: 1, max: 10 }),
      place: fc.option(fc.nat(60)),
    });
    return fc.assert(
      fc.asyncProperty(anyItems, query, async (items, { order, limit, place }) => {
        const { list, texts } = listed(items);
        const inOrder = order === "asc" ? items : items.toReversed();
        const after = place === null ? null : (items[place]?.id ?? null);
        const from = after === null ? 0 : inOrder.findIndex(({ id }) => id === after) + 1;
        const expected = inOrder.slice(from, from + limit);
        const page = await list.page({ id: "r", order, after, limit });
        assert.deepEqual(shown(page, texts), expected);
        assert.deepEqual(
          [page.firstId, page.lastId, page.hasMore],
          [expected[0]?.id ?? null, expected.at(-1)?.id ?? null, from + expected.length < items.length],
        );
      }),
    );
  });

  it("finds an item by its id without reading the others", async () => {
    const items = Array.from({ length: 50_000 }, (_, i) => ({
      id: `msg_${(i * 7919) % 50_000}`,
      text: "t".repeat(i % 9),
    }));
    const { list, texts, readBytes } = listed(items);
    for (const place of [0, 1, 25_000, 49_999]) {
      const item = items[place]!;
      const before = readBytes();
      const [span] = (await list.item(item.id)) ?? [];
      assert.deepEqual(JSON.parse(Buffer.from(texts.subarray(span!.from, span!.to)).toString()), item);
      assert.ok(readBytes() - before < 1000, `${readBytes() - before} bytes of the index`);
    }
    assert.equal(await list.item("msg_50000"), null);
  });

  it("refuses a page after a missing item, and returns an empty page without items", async () => {
    const { list } = listed([{ id: "a", text: "" }]);
    await assert.rejects(
      list.page({ id: "r", order: "asc", after: "b", limit: 1 }),
      (error) => error instanceof ServerError && error.code === "invalid_value" && error.param === "after",
    );
    assert.deepEqual((await listed([]).list.page({ id: "r", order: "desc", after: null, limit: 5 })).spans, []);
    // A lone surrogate is valid in JSON, but not in UTF-8.
    const half = listed([{ id: "x\ud800", text: "" }]);
    assert.equal(await half.list.find("x\ud800", "first"), 0);
  });
});
