import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { StopStrings } from "../../../../engines/text/parse/stop-strings.ts";

/** Feeds the pieces. Returns the whole output, and the output after each piece. */
function run(
  stops: readonly string[],
  pieces: readonly string[],
): { text: string; stopped: string | null; released: string[] } {
  const search = new StopStrings(stops);
  const released: string[] = [];
  let stopped: string | null = null;
  for (const piece of pieces) {
    const result = search.push(piece);
    released.push(result.text);
    stopped ??= result.stopped;
  }
  released.push(search.flush().text);
  return { text: released.join(""), stopped, released };
}

/** Cuts the text at each position whose bit is set. */
function cut(text: string, bits: readonly boolean[]): string[] {
  const pieces: string[] = [];
  let start = 0;
  for (let at = 1; at <= text.length; at++) {
    if (at < text.length && !bits[at % bits.length]) continue;
    pieces.push(text.slice(start, at));
    start = at;
  }
  return pieces;
}

const few = fc.string({ unit: fc.constantFrom("a", "b", "c"), maxLength: 30 });
const someStops = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "c"), minLength: 1, maxLength: 4 }), {
  minLength: 1,
  maxLength: 3,
});
const someBits = fc.array(fc.boolean(), { minLength: 1, maxLength: 9 });

describe("stop strings", () => {
  it("end the text before them, even if they come in pieces", () => {
    assert.deepEqual(run(["END"], ["one E", "N", "D two"]), {
      text: "one ",
      stopped: "END",
      released: ["one ", "", "", ""],
    });
  });

  it("hold back only a possible start", () => {
    assert.deepEqual(run(["\n\n", "###"], ["a\n", "b##", "c#"]).released, ["a", "\nb", "##c", "#"]);
  });

  it("pass text unchanged if there are none", () => {
    assert.deepEqual(run([], ["a", "b"]).released, ["a", "b", ""]);
    assert.deepEqual(run([""], ["a"]).released, ["a", ""]);
  });

  it("emit nothing after a match", () => {
    const search = new StopStrings(["x"]);
    assert.deepEqual(search.push("axb"), { text: "a", stopped: "x" });
    assert.deepEqual(search.push("c"), { text: "", stopped: null });
    assert.deepEqual(search.flush(), { text: "", stopped: null });
  });

  it("match the one that is complete first, the longer of two that end together", () => {
    assert.deepEqual(run(["abcd", "bc"], ["abcd"]).text, "a");
    assert.deepEqual(run(["bc", "abc"], ["abc"]), { text: "", stopped: "abc", released: ["", ""] });
  });

  it("give the same result for any division into pieces", () => {
    fc.assert(
      fc.property(few, someStops, someBits, (text, stops, bits) => {
        let end = 0;
        while (end <= text.length && !stops.some((stop) => text.slice(0, end).endsWith(stop))) end++;
        const matching = stops
          .filter((stop) => text.slice(0, end).endsWith(stop))
          .sort((a, b) => b.length - a.length)[0];
        const expected = end > text.length ? text : text.slice(0, end - matching!.length);
        const result = run(stops, cut(text, bits));
        assert.equal(result.text, expected);
        assert.equal(result.stopped, end > text.length ? null : matching);
      }),
      { numRuns: 3_000 },
    );
  });

  it("hold back exactly the longest suffix that may begin a stop string", () => {
    fc.assert(
      fc.property(few, someStops, someBits, (text, stops, bits) => {
        const search = new StopStrings(stops);
        let seen = "";
        let out = "";
        for (const piece of cut(text, bits)) {
          const result = search.push(piece);
          if (result.stopped !== null) return;
          seen += piece;
          out += result.text;
          let from = 0;
          while (!stops.some((stop) => stop.startsWith(seen.slice(from)))) from++;
          assert.equal(out, seen.slice(0, from));
        }
      }),
      { numRuns: 1_000 },
    );
  });
});
