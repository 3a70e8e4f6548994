// Hard pages for extraction: very long, deeply nested, damaged, or in an unknown encoding. Also tests tables, code
// and lists.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { maxTextLength, pageText } from "../../../../actors/web/extract/page-text.ts";

const read = (html: string, type = "text/html", url = "https://site.test/a/b") =>
  pageText(new TextEncoder().encode(html), type, url);

describe("a page", () => {
  it("that is very long is cut, and says so", () => {
    const { text, isCut } = read(`<main><h1>Long</h1>${"<p>A paragraph of the long page.</p>".repeat(12_000)}</main>`);
    assert.deepEqual([text.length, isCut], [maxTextLength, true]);
  });

  it("with damaged HTML has its text", () => {
    const { text } = read(
      "<main><p>One<b>two</p><div>three<table><td>four</main></td>five & six &lt; &unknown; &#x1F600;",
    );
    for (const word of ["One", "two", "three", "four", "five & six <", "😀"]) assert.ok(text.includes(word), text);
  });

  it("without an element or with nothing has its description", () => {
    assert.equal(read("just text").text, "just text");
    assert.equal(
      read('<html><head><meta name="description" content="About."></head><body></body></html>').text,
      "About.",
    );
    assert.equal(read("").text, "");
  });

  it("has links that are absolute, and only those of http", () => {
    const { text } = read(
      '<main><p>See <a href="../c?d=1#e">this</a>, <a href="javascript:alert(1)">script</a>, <a href="#top">top</a>, <a href="data:text/html,x">data</a> and <a href="https://other.test/">other</a>. This text is long enough to be the main text of the page, or so one hopes when one writes it.</p></main>',
    );
    assert.ok(
      text.includes("See [this](https://site.test/c?d=1#e), script, top, data and [other](https://other.test/)"),
      text,
    );
  });

  it("resolves links against its base", () => {
    const { text } = read(
      '<html><head><base href="/docs/"></head><body><main><p><a href="x">Text of a link</a></p></main></body></html>',
    );
    assert.ok(text.includes("(https://site.test/docs/x)"), text);
  });

  it("has the encoding of its byte order mark, header or declaration", () => {
    const bytes = (...parts: readonly (string | readonly number[])[]) =>
      Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part, "latin1") : Buffer.from(part))));
    const utf16 = Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from("<p>żółć", "utf16le")]);
    assert.equal(pageText(utf16, "text/html; charset=iso-8859-1", "https://a.test/").text, "żółć");
    assert.equal(
      pageText(bytes("<p>", [0xbf, 0xf3, 0xb3, 0xe6]), "text/html;charset='iso-8859-2'", "https://a.test/").text,
      "żółć",
    );
    assert.equal(
      pageText(bytes('<meta charset="koi8-r"><p>', [0xcd, 0xc9, 0xd2]), "text/html", "https://a.test/").text,
      "мир",
    );
    assert.equal(pageText(bytes("<p>", [0xe4, 0xf6]), "text/html", "https://a.test/").text, "äö");
    assert.equal(pageText(Buffer.from("<p>äö"), "text/html", "https://a.test/").text, "äö");
    assert.equal(pageText(bytes("<p>a", [0xff]), "text/html; charset=no-such", "https://a.test/").text, "aÿ");
  });

  it("that is JSON, CSV or XML stays as it is", () => {
    assert.equal(read('{"a": "<b>"}', "application/json").text, '{"a": "<b>"}');
    assert.equal(read("<rss><title>x</title></rss>", "application/rss+xml").text, "<rss><title>x</title></rss>");
  });

  it("keeps fences inside of code, and languages", () => {
    const { text } = read(
      "<main><pre class='brush: css'>```\na\n```</pre><pre><code>x<br>y</code></pre><p>End of the page.</p></main>",
    );
    assert.ok(text.includes("````css\n```\na\n```\n````"), text);
    assert.ok(text.includes("```\nx\ny\n```"), text);
  });

  it("escapes what would break a table", () => {
    const { text } = read(
      "<main><table><tr><th>a|b</th><th>c</th></tr><tr><td>1<br>2</td><td></td></tr></table><p>End.</p></main>",
    );
    assert.ok(text.includes("| a\\|b | c |\n| --- | --- |\n| 1 2 |  |"), text);
  });
});
