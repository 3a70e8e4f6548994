import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Sequence } from "../../../../engines/decoding/scheduler/sequence.ts";
import { PromptLookup, sharedLookupAcceptance } from "../../../../engines/decoding/speculation/prompt-lookup.ts";

/** Returns a sequence with this prompt, its prompt lookup (drafter), and a function that appends output tokens. */
function open(prompt: readonly number[]) {
  const sequence = new Sequence({
    client: "client",
    hasQueueLimit: false,
    prompt: Int32Array.from(prompt),
    maxNewTokens: 1000,
    ignoreEos: true,
    adapter: 0,
    priority: 0,
    isPooled: false,
    wantsPromptLogits: false,
  });
  const lookup = new PromptLookup(sequence, sharedLookupAcceptance());
  const say = (...tokens: number[]) => {
    for (const token of tokens) sequence.tokens[sequence.total++] = token;
    lookup.follow(Infinity);
  };
  const draft = (count: number) => {
    const into = new Int32Array(count);
    lookup.write(into, count);
    return [...into];
  };
  lookup.follow(Infinity);
  return { sequence, lookup, say, draft };
}

const count = (from: number, length: number) => Array.from({ length }, (_, i) => from + i);

describe("prompt lookup", () => {
  it("has no draft if the last tokens did not occur before", () => {
    const { lookup } = open(count(0, 50));
    assert.equal(lookup.hasDraft, false);
  });

  it("drafts the tokens that followed the last occurrence", () => {
    const { lookup, say, draft } = open([1, 2, 3, 4, 5, 6, 9, 3, 4, 7, 8, 0]);
    say(3, 4);
    assert.ok(lookup.hasDraft);
    assert.deepEqual(draft(2), [7, 8]);
  });

  it("continues a right draft, even if the same tokens occurred elsewhere later", () => {
    const { say, draft } = open([10, 11, 12, 13, 20, 21, 22, 23, 24, 20, 21, 99, 5]);
    say(11, 12, 13, 20, 21);
    assert.deepEqual(draft(3), [22, 23, 24]);
  });

  it("repeats itself when the draft reaches the end of the sequence", () => {
    const { draft } = open([5, 1, 2, 3, 1, 2, 3, 1, 2]);
    assert.deepEqual(draft(7), [3, 1, 2, 3, 1, 2, 3]);
  });

  it("resumes a copy after an edit, even if the last two tokens occur elsewhere later", () => {
    const { say, draft } = open([...count(100, 30), 114, 115, 7, 7, 1]);
    say(...count(100, 12), 50, 51, 114, 115);
    assert.deepEqual(draft(3), [116, 117, 118]);
  });

  it("reads a long prompt in parts, and drafts when it has all of it", () => {
    const { sequence, lookup } = open([]);
    sequence.tokens.set([...count(1, 40), ...count(1, 10)]);
    sequence.total = 50;
    assert.equal(lookup.follow(45), 45);
    assert.equal(lookup.hasDraft, false);
    assert.equal(lookup.follow(45), 5);
    assert.equal(lookup.hasDraft, true);
    assert.equal(lookup.follow(45), 0);
  });

  it("trusts long matches more than short ones", () => {
    const { lookup, say } = open([...count(0, 40), 99]);
    say(3, 4);
    const short = lookup.chance(0);
    say(...count(5, 20));
    assert.ok(lookup.chance(0) > short);
  });

  it("learns from generated tokens, even if nothing is drafted", () => {
    const misled = open([1, 2, 3, 4]);
    const before = open([1, 2, 3, 4, 8, 1, 2]).lookup.chance(0);
    for (let i = 0; i < 30; i++) misled.say(1, 2, 10 + i);
    misled.say(1, 2);
    assert.ok(misled.lookup.chance(0) < before / 2, `${misled.lookup.chance(0)} of ${before}`);
  });
});
