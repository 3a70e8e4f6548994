import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { beginsWith, type ListedPrefix, PrefixList } from "../../../../engines/decoding/prefix-store/prefix-list.ts";

/** Random prefixes of few different tokens and adapters, so that many keys have common prefixes. */
const prefixes = fc.array(
  fc.record({
    adapter: fc.constantFrom("", "a", "b"),
    tokens: fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: 8 }),
    fileBytes: fc.integer({ min: 1, max: 9 }),
  }),
  { maxLength: 40 },
);

function listOf(given: readonly { adapter: string; tokens: readonly number[]; fileBytes: number }[]) {
  const list = new PrefixList();
  const kept = new Set<ListedPrefix>();
  for (const [i, { tokens, ...others }] of given.entries()) {
    const prefix = { ...others, name: String(i), tokens: Int32Array.from(tokens) };
    if (list.covers(prefix)) continue;
    const replaced = list.add(prefix);
    if (replaced !== null) assert.ok(kept.delete(replaced));
    kept.add(prefix);
  }
  return { list, kept };
}

describe("the list of stored prefixes", () => {
  it("keeps every prefix that is not the beginning of another", () => {
    fc.assert(
      fc.property(prefixes, (given) => {
        const { list, kept } = listOf(given);
        assert.equal(list.size, kept.size);
        for (const one of kept) {
          for (const other of kept) assert.ok(one === other || !beginsWith(one, other));
        }
        for (const { adapter, tokens } of given) {
          assert.ok(list.covers({ adapter, tokens: Int32Array.from(tokens) }));
        }
      }),
    );
  });

  it("finds one with the longest common beginning, whatever was removed", () => {
    const common = (a: Int32Array, b: Int32Array) => {
      const differs = a.findIndex((token, i) => token !== b[i]);
      return differs < 0 ? a.length : differs;
    };
    fc.assert(
      fc.property(prefixes, prefixes, fc.array(fc.nat(40)), (given, wanted, removed) => {
        const { list, kept } = listOf(given);
        for (const index of removed) list.remove(String(index));
        const left = [...kept].filter(({ name }) => !removed.includes(Number(name)));
        for (const { adapter, tokens } of wanted) {
          const key = { adapter, tokens: Int32Array.from(tokens) };
          const lengths = left.filter((prefix) => prefix.adapter === adapter).map((p) => common(p.tokens, key.tokens));
          const longest = Math.max(0, ...lengths);
          const found = list.longest(key);
          assert.equal(found?.length ?? 0, longest);
          if (found) assert.equal(common(found.prefix.tokens, key.tokens), longest);
        }
      }),
    );
  });

  it("chooses the smaller file of two neighbours with equally long common beginnings", () => {
    const list = new PrefixList();
    const add = (name: string, last: number, fileBytes: number) =>
      list.add({ name, adapter: "", tokens: Int32Array.of(1, 2, last), fileBytes });
    add("large", 3, 900);
    add("small", 9, 300);
    assert.equal(list.longest({ adapter: "", tokens: Int32Array.of(1, 2, 5) })?.prefix.name, "small");
  });
});
