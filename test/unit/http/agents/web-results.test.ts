// Web citations: the parts of a text that refer to pages found by a web search.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ProgressEvent } from "../../../../http/shared/agent/progress-event.ts";
import { Sources } from "../../../../http/shared/agent/web-results.ts";

function found(...urls: readonly string[]): ProgressEvent {
  const output = urls.map((url) => ({ title: url, description: "", url, content: "" }));
  const call = { id: "c", name: "service_search_the_web", arguments: "{}" };
  const record = {
    round: 0,
    name: call.name,
    arguments: "{}",
    result_content: JSON.stringify({ sources: [], output }),
  };
  const data = { tool_type: "web_search" };
  return {
    type: "tool_progress",
    phase: "complete",
    round: 0,
    index: 0,
    call,
    toolType: "web_search",
    server: null,
    data,
    record,
  };
}

/** Returns the parts of the text that are citations, each with the page that it refers to. */
function cited(text: string, ...urls: readonly string[]): readonly (readonly [string, string])[] {
  const sources = new Sources();
  sources.take(found(...urls));
  return sources.citedIn(text).map(({ start, end, page }) => [text.slice(start, end), page.url]);
}

it("a function with the name of a web tool is not a source, whatever it returns", () => {
  const sources = new Sources();
  const event = found("https://a.example/");
  sources.take({ ...event, toolType: "custom", record: { ...event.record!, result_content: "no JSON" } });
  sources.take({ ...event, record: { ...event.record!, result_content: "The user edited this call" } });
  assert.ok(sources.isEmpty);
});

describe("citations", () => {
  it("are found without a space between them, also to pages with parentheses", () => {
    const pages = ["https://a.example/x", "https://b.example/y_(z)"];
    assert.deepEqual(cited("[1](https://a.example/x)[2](https://b.example/y_(z))(3)", ...pages), [
      ["[1](https://a.example/x)", pages[0]],
      ["[2](https://b.example/y_(z))", pages[1]],
    ]);
  });

  const page = "https://a.example/x";
  const cases: readonly (readonly [text: string, part: string])[] = [
    [`See ${page}.`, page],
    [`See ${page}/, then`, `${page}/`],
    [`See <${page}>`, page],
    [`(${page})`, page],
    [`**${page}**`, page],
    [`[it](${page}) is`, `[it](${page})`],
    [`[a\nb](${page})`, page],
    [`[${"n".repeat(600)}](${page})`, page],
    [`](${page})`, page],
    [`([it](${page});[that](https://b.example/y))`, `[it](${page})`],
    [`| [it](${page})|`, `[it](${page})`],
    [`[it](${page})'s`, `[it](${page})`],
    [`[it](${page})—then`, `[it](${page})`],
    [`见[标题](${page})。`, `[标题](${page})`],
    [`根据[标题](${page})的报道`, `[标题](${page})`],
    [`见${page}。`, page],
  ];
  for (const [text, part] of cases) {
    it(`are found in ${JSON.stringify(text.slice(0, 40))}`, () => assert.deepEqual(cited(text, page), [[part, page]]));
  }

  it("are only pages that were found, each as often as it is named", () => {
    assert.deepEqual(cited(`${page} https://b.example/ ${page}/y ${page}`, page).length, 2);
    const wiki = "https://w.example/A_(b)";
    assert.deepEqual(cited(`[w](${wiki}), (${wiki})`, wiki), [
      [`[w](${wiki})`, wiki],
      [wiki, wiki],
    ]);
    assert.deepEqual(cited(page), []);
  });

  it("are found in a long text in a time that grows with its length", () => {
    const startedAt = performance.now();
    const texts = [
      "[".repeat(500_000),
      "https://".repeat(60_000),
      `${page}${")".repeat(500_000)}`,
      `](${page})`.repeat(20_000),
    ];
    for (const text of texts) cited(text, page);
    assert.ok(performance.now() - startedAt < 2000);
  });
});
