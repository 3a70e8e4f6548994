// Boilerplate removal from pages: text that looks like boilerplate is kept, and boilerplate that looks like text is
// removed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pageText } from "../../../../actors/web/extract/page-text.ts";

const filler = `<p>${"The harbour was rebuilt in stone after the flood, and the town has paid for it ever since. ".repeat(8)}</p>`;

/** Returns the text extracted from a page whose main element has a title, filler text and `html`. */
const main = (html: string): string => page(`<main><h1>Title</h1>${filler}${html}</main>`);
const page = (body: string, head = ""): string =>
  pageText(
    new TextEncoder().encode(`<html><head>${head}</head><body>${body}</body></html>`),
    "text/html",
    "https://a.test/",
  ).text;

function has(text: string, ...parts: readonly string[]): void {
  for (const part of parts) assert.ok(text.includes(part), `"${part}" is not in\n${text}`);
}

function lacks(text: string, ...parts: readonly string[]): void {
  for (const part of parts) assert.ok(!text.includes(part), `"${part}" is in\n${text}`);
}

describe("cleaning keeps", () => {
  it("headings whose class has a word of boilerplate", () => {
    has(main('<h2 class="anchor anchorWithStickyNavbar_x" id="social">Intervals</h2><p>Text.</p>'), "## Intervals");
  });

  it("sections with the ids of their headings", () => {
    const section = (title: string): string =>
      `<section id="${title.toLowerCase()}"><h2>${title}</h2><p>About ${title.toLowerCase()} in code.</p></section>`;
    has(main(["Comments", "Navigation", "Widget"].map(section).join("")), "About comments", "About navigation");
  });

  it("the main heading in a banner", () => {
    has(page(`<div class="page-banner"><h1>The harbour</h1><p>Buy now</p></div><div>${filler}</div>`), "The harbour");
  });

  it("all panels of tabs and what readers can unfold", () => {
    const text = main(
      '<ul role="tablist"><li role="tab">Label</li></ul><div role="tabpanel">One</div><div role="tabpanel" hidden>Two</div><div hidden="until-found">Three</div><div hidden>Four</div><details><summary>Why?</summary>Five</details>',
    );
    has(text, "One", "Two", "Three", "Why?", "Five");
    lacks(text, "Label", "Four");
  });

  it("a form around the page", () => {
    has(page(`<form id="aspnetForm"><div><h1>Title</h1>${filler}</div></form>`), "rebuilt in stone");
  });

  it("numbers in code that are not those of lines", () => {
    const numbers = '<span class="mi">1</span>\n<span class="mi">2</span>\nx = <span class="mi">3</span>\nend';
    has(main(`<pre><code>${numbers}</code></pre>`), "```\n1\n2\nx = 3\nend\n```");
  });

  it("signatures of functions and notes", () => {
    const text = main(
      '<h4>open<span class="signature">(path)</span></h4><div class="hatnote navigation-x" role="note">See also.</div>',
    );
    has(text, "open(path)", "See also.");
  });

  it("lists of links in running text, and pages of links", () => {
    const links = [1, 2, 3, 4].map((n) => `<li><a href="/f${n}.pdf">File number ${n}</a></li>`).join("");
    has(page(`<div><h2>About</h2>${filler}<h3>Files</h3><ul>${links}</ul></div>`), "File number 3");
    has(page(`<div><ul>${links}</ul></div>`), "File number 3");
  });

  it("equal links in tables", () => {
    const rows = [1, 2, 3].map((n) => `<tr><td>v${n}</td><td><a href="/d${n}">Download</a></td></tr>`).join("");
    has(main(`<table><tr><th>Version</th><th>File</th></tr>${rows}</table>`), "| v2 | [Download](https://a.test/d2) |");
  });

  it("comments on pages that are a discussion, by microdata or JSON-LD", () => {
    const comment = '<div class="comment"><p>It is the coil.</p></div>';
    lacks(main(comment), "the coil");
    has(main(`<div itemscope itemtype="https://schema.org/Question">${comment}</div>`), "the coil");
    const type = '<script type="application/ld+json">{"@type":"DiscussionForumPosting"}</script>';
    has(page(`<main>${filler}${comment}</main>`, type), "the coil");
    const faq = '<div itemtype="https://schema.org/FAQPage"><p itemtype="https://schema.org/Question">Why?</p></div>';
    lacks(main(comment + faq), "the coil");
  });
});

describe("cleaning keeps, besides,", () => {
  it("comments that are the page", () => {
    const comment = (n: number): string =>
      `<div class="comment"><span>user${n}</span><p>Remark ${n}, ${"and so on ".repeat(9)}</p></div>`;
    const thread = `<div>A title</div><div>${[1, 2, 3, 4].map(comment).join("")}</div>`;
    has(page(thread), "user1", "Remark 4");
    lacks(page(`<div><h1>Title</h1>${filler}</div>${thread}`), "Remark 4");
  });

  it("buttons that are headings", () => {
    has(main("<h3><button>Can I fly?</button></h3><p>Usually.</p><button>Buy</button>"), "### Can I fly?");
  });
});

describe("cleaning removes", () => {
  it("line numbers in a column or in the lines, whatever their class", () => {
    const column =
      "<table><tr><td><pre>1\n2\n3</pre></td><td><pre><code class='language-go'>a\nb\nc</code></pre></td></tr></table>";
    has(main(column), "```go\na\nb\nc\n```");
    lacks(main(column), "1\n2");
    has(main("<pre><i class=q>7</i>a\n<i class=q>8</i>b\n<i class=q>9</i>c</pre>"), "```\na\nb\nc\n```");
  });

  it("the box around a form for an email address", () => {
    const box =
      '<div class="p-6"><b>Good stories</b><div><form><input type="email"><button>Go</button></form></div><small>No spam.</small></div>';
    lacks(main(box), "Good stories", "No spam");
  });

  it("lists of links to the page itself, with their heading", () => {
    const items = ["a", "b", "c"].map((id) => `<li><a href="#${id}">Part ${id}</a></li>`).join("");
    lacks(main(`<div><h3>Parts</h3><ul>${items}</ul></div>`), "Part a", "Parts");
  });

  it("sections about other pages and by visitors, up to the next heading", () => {
    const text = main(
      "<section><h2>Comments (2)</h2><p>First!</p></section><h2>You may also like</h2><p>Old news</p><h2>Sources</h2><p>Archive.</p>",
    );
    lacks(text, "First!", "Old news");
    has(text, "Sources", "Archive.");
  });

  it("reviews on pages of products", () => {
    const review = '<div class="reviews"><p>Too loud.</p></div>';
    has(main(review), "Too loud");
    lacks(page(`<main>${filler}${review}</main>`, '<meta property="og:type" content="product">'), "Too loud");
  });

  it("what surrounds the posts of a forum", () => {
    const post = (name: string, n: number): string =>
      `<div class="post"><dl class="postprofile"><dt><a href="/u">${name}</a></dt><dd>Posts: 812</dd></dl><h3>${n > 0 ? "Re: " : ""}Engine dies</h3><p>Post number ${n} about the engine that dies when it is warm.</p><ul><li><a href="/report/${n}">Report</a></li></ul><div class="signature">Ride on</div></div>`;
    const text = page(`<div>${["ann", "bob", "cid", "dan"].map(post).join("")}</div>`);
    has(text, "ann", "dan", "Post number 3", "### Engine dies");
    lacks(text, "812", "Re:", "Report", "Ride on");
  });

  it("the line about copyright at the end, not elsewhere", () => {
    const text = page(
      `<div><p>© 1901 says the first plate.</p>${filler}</div><div><p>© 2026 A Ltd. All rights reserved.</p></div>`,
    );
    has(text, "first plate");
    lacks(text, "A Ltd");
  });

  it("nothing between words in elements side by side", () => {
    const text = main("<div><span>Ann Lee</span><time>2 March</time></div><pre><b>a</b><b>b</b></pre>");
    has(text, "Ann Lee 2 March", "```\nab\n```");
  });
});

describe("the element around an article", () => {
  it("has its subtitle, author and captions, not what lies beside it", () => {
    const text = page(
      `<div class="wrap"><div class="grid"><div><div><h1>The harbour</h1><p>How stone came to town</p><span>Ann Lee</span></div><div class="body">${filler}<p>Between.</p>${filler}</div></div><div><b>Hot</b><p><a href="/x">Ten things</a></p></div></div></div>`,
    );
    has(text, "How stone came to town", "Ann Lee", "Between.");
  });

  it("is the article in a main element with other blocks", () => {
    const text = page(
      `<main><div>Branches 6</div><article><h1>Read me</h1>${filler}</article><div>Stars 12</div></main>`,
    );
    has(text, "Read me");
    lacks(text, "Branches", "Stars");
  });

  it("is the main element if it has several posts", () => {
    const post = (n: number): string => `<article><p>Post ${n}.</p>${filler}</article>`;
    const short = (n: number): string =>
      `<div><article><p>Post ${n}: ${"words ".repeat(n === 1 ? 40 : 18)}</p></article></div>`;
    has(page(`<div><h1>Posts</h1>${[1, 2, 3].map(short).join("")}</div>`), "Post 1:", "Post 3:");
    has(page(`<main><h1>Posts</h1>${[1, 2, 3].map(post).join("")}</main>`), "Post 1.", "Post 3.");
  });
});
