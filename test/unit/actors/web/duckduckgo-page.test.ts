// DuckDuckGo result pages, handwritten in the format of its HTML interface.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { duckDuckGoResults } from "../../../../actors/web/extract/duckduckgo-page.ts";

function result(href: string, title: string, snippet: string, classes = "result results_links web-result"): string {
  return `<div class="${classes}"><div class="links_main result__body"><h2 class="result__title"><a rel="nofollow" class="result__a" href="${href}">${title}</a></h2><a class="result__snippet" href="${href}">${snippet}</a></div></div>`;
}

const page = (content: string): string => `<html><body><div id="links" class="results">${content}</div></body></html>`;

describe("a result page", () => {
  it("has the titles, URLs behind the redirects, and snippets", () => {
    const target = "https://example.test/a?b=1&c=%C3%A4";
    const html = page(
      result(
        `//duckduckgo.com/l/?uddg=${encodeURIComponent(target)}&amp;rut=abc`,
        "A &amp; <b>B</b>",
        "Some  <b>words</b>\n here",
      ) + result("https://direct.test/", "Direct", ""),
    );
    assert.deepEqual(duckDuckGoResults(html), [
      { title: "A & B", url: target, description: "Some words here" },
      { title: "Direct", url: "https://direct.test/", description: "" },
    ]);
  });

  it("leaves out advertisements and links without a target", () => {
    const html = page(
      result("//duckduckgo.com/y.js?ad_domain=shop.test", "Ad", "", "result result--ad") +
        result("//duckduckgo.com/y.js?ad_domain=shop.test", "Ad without its class", "") +
        result("//duckduckgo.com/l/?uddg=not%20a%20url", "Bad", "") +
        result("https://kept.test/", "Kept", ""),
    );
    const found = duckDuckGoResults(html);
    assert.deepEqual(Array.isArray(found) && found.map(({ title }) => title), ["Kept"]);
  });

  it("says that there are no results, that it asks for a check, or is something else", () => {
    assert.deepEqual(duckDuckGoResults(page('<div class="no-results">No results found</div>')), []);
    const check =
      '<form id="challenge-form"><div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div></form>';
    assert.equal(duckDuckGoResults(page(check)), "blocked");
    assert.equal(duckDuckGoResults("<html><body>Welcome</body></html>"), "unknown");
  });
});
