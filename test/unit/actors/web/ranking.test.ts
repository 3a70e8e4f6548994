// Passage ranking: selects the passages of a page that answer a query, by words and by embeddings, up to a number of
// characters.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pageText } from "../../../../actors/web/extract/page-text.ts";
import { passagesOf } from "../../../../actors/web/ranking/passages.ts";
import { embeddingScores, type Passage, wordScores } from "../../../../actors/web/ranking/scores.ts";
import { selectPassages } from "../../../../actors/web/ranking/select.ts";
import { fixturePages } from "./pages.ts";

/** Queries, each with a page and a text of the passage that answers the query. */
const answers: readonly (readonly [query: string, page: string, answer: string])[] = [
  ["how many people cross the new river bridge per day", "news-article", "eleven thousand people"],
  ["when does the tram on the bridge start", "news-article", "1 December"],
  ["how warm should water for sourdough be", "blog-post", "at 30 degrees"],
  ["default of the retries option of a queue", "docs-code-table", "| `retries` | number | 3 |"],
  ["USB disk reset high speed device over-current dmesg", "forum-thread", "dmesg | grep usb"],
  ["how deep is Lake Orle", "wiki-infobox", "118 m"],
  ["red lentil soup ingredients cumin", "recipe", "1 teaspoon cumin"],
  ["kettle power watt", "product", "2400 W"],
  ["API error 429 users requests per minute", "api-reference", "60 requests in a minute"],
  ["which version dropped Node 18", "changelog", "Node 18 is no longer supported"],
  ["delete keys from dict while iterating python", "question-answer", "for key in list(d)"],
  ["crystal radio diode germanium or silicon", "nineties-tables", "germanium"],
  ["formula for solutions of quadratic equation", "math", "\\sqrt{p^2/4 - q}"],
  ["京都 駅から 橋まで", "shift-jis", "十五分"],
  ["电动自行车 电池 小时", "chinese", "十二个小时"],
  ["новая библиотека часы работы", "windows-1251", "с девяти утра"],
  ["railway passengers north line may", "spanned-table", "131"],
];

const passages: readonly Passage[] = fixturePages.flatMap(({ bytes, type, url }, page) => {
  const { title, text } = pageText(bytes, type, url);
  return passagesOf(text).map((passage) => ({ page, title, text: passage }));
});
const pageNamed = (name: string): number => fixturePages.findIndex((page) => page.name === name);

/** Fake embedding model: counts the word stems (first five letters) of a text, so that similar texts have similar vectors. */
async function fakeEmbed(texts: readonly string[]): Promise<readonly Float32Array[]> {
  return texts.map((text) => {
    const vector = new Float32Array(256);
    for (const word of text.toLowerCase().match(/[\p{L}\p{N}]{3,}/gu) ?? []) {
      const at = [...word.slice(0, 5)].reduce((hash, letter) => (hash * 31 + (letter.codePointAt(0) ?? 0)) % 256, 7);
      vector[at] = (vector[at] ?? 0) + 1;
    }
    const length = Math.hypot(...vector) || 1;
    return vector.map((value) => value / length);
  });
}

describe("the selected passages", () => {
  for (const [query, page, answer] of answers) {
    it(`have the answer: ${query}`, () => {
      const selected = selectPassages(passages, wordScores(query, passages), 8000);
      const [first] = selected;
      assert.equal(fixturePages[first?.page ?? -1]?.name, page);
      assert.ok(first?.content.includes(answer), first?.content);
    });
  }

  it("have the answer if embeddings rank them", async () => {
    for (const [query, page, answer] of answers.slice(0, 4)) {
      const selected = selectPassages(
        passages,
        await embeddingScores(query, passages, wordScores(query, passages), fakeEmbed),
        16_384,
      );
      const of = selected.findIndex((one) => one.page === pageNamed(page));
      assert.ok(selected[of]?.content.includes(answer), `${query}: ${of}`);
    }
  });

  it("are ranked by the embeddings and not by the words", async () => {
    const two = [
      { page: 0, title: "", text: "The query words cat and dog are here." },
      { page: 1, title: "", text: "Pets." },
    ];
    const scores = await embeddingScores("cat dog", two, [1, 0], async (texts, inputType) => {
      assert.deepEqual(texts, inputType === "query" ? ["cat dog"] : [two[0]?.text, "Pets."]);
      return texts.map((text) => (text === two[0]?.text ? Float32Array.of(1, 0) : Float32Array.of(0, 1)));
    });
    assert.deepEqual(
      selectPassages(two, scores, 1000).map(({ page }) => page),
      [1, 0],
    );
  });

  it("embed a bounded number of passages", async () => {
    const many = Array.from({ length: 500 }, (_, page) => ({ page, title: "", text: `text ${page}` }));
    let count = 0;
    const words = many.map(({ page }) => page);
    await embeddingScores("text", many, words, async (texts, inputType) => {
      assert.equal(texts[0], inputType === "query" ? "text" : "text 499");
      count += texts.length;
      return texts.map(() => Float32Array.of(1));
    });
    assert.equal(count, 65);
  });
});

describe("the budget", () => {
  const long = Array.from({ length: 200 }, (_, at) => ({
    page: at % 10,
    title: "",
    text: `${at} `.repeat(250).trim(),
  }));
  const sizeOf = (budget: number): number => {
    const scores = long.map((_, at) => 200 - at);
    return selectPassages(long, scores, budget).reduce((sum, { content }) => sum + content.length, 0);
  };

  it("is used to its last characters and never exceeded", () => {
    for (const budget of [100, 5000, 16_384, 32_768, 65_536]) {
      const size = sizeOf(budget);
      assert.ok(size <= budget && size > budget - 80, `${size} of ${budget}`);
    }
  });

  it("is shared: each page has a passage before one has two", () => {
    const selected = selectPassages(
      long,
      long.map(({ page }) => 10 - page),
      16_384,
    );
    assert.deepEqual(
      selected.map(({ page }) => page),
      [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    );
    assert.ok(selected.every(({ content }) => content.length > 400));
  });

  it("keeps passages in the order of the page", () => {
    const three = ["first", "second", "third"].map((text) => ({ page: 0, title: "", text }));
    assert.equal(selectPassages(three, [1, 3, 2], 100)[0]?.content, "first\n\nsecond\n\nthird");
  });

  it("cuts no character in half", () => {
    const [selected] = selectPassages([{ page: 0, title: "", text: "😀".repeat(100) }], [1], 101);
    assert.equal(selected?.content, "😀".repeat(50));
  });
});

describe("passages", () => {
  it("keep code blocks whole, join short blocks and divide long ones", () => {
    const code = `\`\`\`js\nlet a;\n\n${"b();\n".repeat(60)}\`\`\``;
    const text = `# Title\n\nShort.\n\n${code}\n\n## Next\n\n${"A sentence here. ".repeat(300)}`;
    const parts = passagesOf(text);
    assert.ok(parts.some((part) => part.includes(code)));
    assert.ok(
      parts.every((part) => part.length <= 2000),
      String(parts.map(({ length }) => length)),
    );
    assert.ok(parts[0]?.startsWith("# Title\n\nShort."));
    assert.equal(parts.join("").replaceAll(/\s/g, ""), text.replaceAll(/\s/g, ""));
  });
});
