// Main text extraction, on pages modelled on real sites. The score is the F1 of words, compared with texts extracted by hand.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pageText } from "../../../../actors/web/extract/page-text.ts";
import { type FixturePage, fixturePages, heldOutPages } from "./pages.ts";

const minScore = 0.9;

/** Returns the words of a text without the URLs of links. In scripts without spaces, each character counts as a word. */
function wordsOf(text: string): readonly string[] {
  const plain = text.replaceAll(/\]\([^)\s]*\)/g, "]").toLowerCase();
  return plain.match(/[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{N}]+/gu) ?? [];
}

function scoreOf(text: string, reference: string): number {
  const left = new Map<string, number>();
  for (const word of wordsOf(reference)) left.set(word, (left.get(word) ?? 0) + 1);
  let common = 0;
  for (const word of wordsOf(text)) {
    const count = left.get(word) ?? 0;
    if (count > 0) common++;
    left.set(word, count - 1);
  }
  return (2 * common) / (wordsOf(text).length + wordsOf(reference).length);
}

function testPages(pages: readonly FixturePage[], minPages: number, minMean: number): void {
  const scores: number[] = [];
  for (const { name, url, type, bytes, reference, gone, kept } of pages) {
    it(`is found: ${name}`, () => {
      const { text } = pageText(bytes, type, url);
      const score = scoreOf(text, reference);
      scores.push(score);
      assert.ok(score >= minScore, `F1 ${score.toFixed(3)} of\n${text}`);
      for (const part of gone) assert.ok(!text.includes(part), `"${part}" is in\n${text}`);
      for (const part of kept) assert.ok(text.includes(part), `"${part}" is not in\n${text}`);
    });
  }

  it("has a high score on average", (test) => {
    const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
    test.diagnostic(`F1 of ${scores.length} pages: min ${Math.min(...scores).toFixed(3)}, mean ${mean.toFixed(3)}`);
    assert.ok(scores.length >= minPages && mean >= minMean, `mean ${mean}`);
  });
}

describe("the main text of a page", () => testPages(fixturePages, 30, 0.97));
describe("the main text of a held-out page", () => testPages(heldOutPages, 30, 0.95));
