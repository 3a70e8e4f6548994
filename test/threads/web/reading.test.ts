// Page reading on the web thread: host and request rules, document types, limits, and malicious pages.
import assert from "node:assert/strict";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { startWebRig, type WebRig } from "../../fixtures/actors/web-rig.ts";
import { pdfOf } from "../../server/agents/pdf.ts";

const article = (text: string): string =>
  `<html><head><title>T</title></head><body><main><p>${text}</p></main></body></html>`;

describe("a page", () => {
  let web: WebRig;
  before(async () => {
    web = await startWebRig();
    web.answers.set("/a", { body: article("The text of the page.") });
  });
  after(() => web.stop());

  it("is read as markdown, with its URL after redirects", async () => {
    web.answers.set("site.test/old", (_request, response) => response.writeHead(301, { location: "/a" }).end());
    const page = await web.read(web.at("site.test", "/old#part"));
    assert.deepEqual(page, {
      url: web.at("site.test", "/a"),
      title: "T",
      content: "The text of the page.",
      isCut: false,
    });
  });

  it("on a private address is refused, also after a redirect", async () => {
    const before = web.requests.length;
    await assert.rejects(web.read(web.at("inner.test", "/a")), /is not public/);
    assert.equal(web.requests.length, before);
    web.answers.set("site.test/in", (_request, response) =>
      response.writeHead(302, { location: web.at("inner.test", "/a") }).end(),
    );
    await assert.rejects(web.read(web.at("site.test", "/in")), /is not public/);
    await assert.rejects(web.read("file:///etc/passwd"), /expected a URL of http or https/);
  });

  it("is cut at the context size of the request", async () => {
    web.answers.set("/long", { body: article("word ".repeat(20_000)) });
    const [low, high] = await Promise.all([
      web.read(web.at("site.test", "/long"), { contextSize: "low" }),
      web.read(web.at("site.test", "/long"), { contextSize: "high" }),
    ]);
    assert.deepEqual([low.content.length, low.isCut], [4 * 4096, true]);
    assert.deepEqual([high.content.length, high.isCut], [4 * 16_384, true]);
  });

  it("that robots.txt disallows is not read; the file is asked for once", async () => {
    web.answers.set("robots.test/robots.txt", {
      type: "text/plain",
      body: "User-agent: *\nDisallow: /no\nUser-agent: troupe\nDisallow: /never\n",
    });
    web.answers.set("/never/a", { body: article("secret") });
    web.answers.set("/no", { body: article("for troupe") });
    await assert.rejects(web.read(web.at("robots.test", "/never/a")), /robots.txt of robots.test:\d+ does not allow/);
    assert.equal((await web.read(web.at("robots.test", "/no"))).content, "for troupe");
    assert.equal(web.requests.filter((request) => request === "robots.test /robots.txt").length, 1);
    assert.equal(web.requests.includes("robots.test /never/a"), false);
  });

  it("is read if robots.txt is missing, and not if its server fails", async () => {
    web.answers.set("down.test/robots.txt", { status: 503, body: "" });
    await assert.rejects(web.read(web.at("down.test", "/a")), /robots.txt of down.test:\d+ cannot be read: .*503/);
    assert.equal((await web.read(web.at("none.test", "/a"))).content, "The text of the page.");
  });

  it("is refused for a redirect to a disallowed page or a blocked domain", async () => {
    web.answers.set("robots.test/go", (_request, response) => response.writeHead(302, { location: "/never/a" }).end());
    await assert.rejects(web.read(web.at("robots.test", "/go")), /robots.txt/);
    web.answers.set("site.test/leave", (_request, response) =>
      response.writeHead(302, { location: web.at("blocked.test", "/a") }).end(),
    );
    const options = { blockedDomains: ["blocked.test"] };
    await assert.rejects(web.read(web.at("site.test", "/leave"), options), /does not allow pages of blocked.test/);
    await assert.rejects(web.read(web.at("site.test", "/a"), { allowedDomains: ["other.test"] }), /does not allow/);
  });

  it("is a PDF file, JSON or text; other types are refused by name", async () => {
    web.answers.set("/doc.pdf", {
      type: "application/pdf",
      body: pdfOf("BT /F 12 Tf 9 9 Td (Words of it) Tj ET", 1),
    });
    const pdf = await web.read(web.at("site.test", "/doc.pdf"));
    assert.deepEqual([pdf.title, pdf.content], ["doc.pdf", "Words of it"]);
    web.answers.set("/data.json", { type: "application/json", body: '{"a":1}' });
    assert.equal((await web.read(web.at("site.test", "/data.json"))).content, '{"a":1}');
    web.answers.set("/film", { type: "video/mp4", body: "x" });
    await assert.rejects(
      web.read(web.at("site.test", "/film")),
      /expected a page, text, JSON or PDF file .* got video\/mp4/,
    );
    web.answers.set("/empty", { body: "<html><body></body></html>" });
    await assert.rejects(web.read(web.at("site.test", "/empty")), /the page has no text/);
    await assert.rejects(web.read(web.at("site.test", "/missing")), /expected status 200 from site.test:\d+, got 404/);
  });

  it("is fetched at most twice at once from one host, and clients take turns", async () => {
    let running = 0;
    let most = 0;
    web.answers.set("/slow", (_request, response) => {
      most = Math.max(most, ++running);
      setTimeout(() => {
        running--;
        response.writeHead(200, { "content-type": "text/plain" }).end("slow");
      }, 150);
    });
    const ended: string[] = [];
    const read = (client: string) => web.read(web.at("busy.test", "/slow"), {}, client).then(() => ended.push(client));
    await Promise.all([...Array.from({ length: 6 }, () => read("many")), sleep(20).then(() => read("one"))]);
    assert.equal(most, 2);
    assert.ok(ended.indexOf("one") < 4, String(ended));
  });

  it("is not read after the request was cancelled", async () => {
    web.answers.set("/hang", () => {});
    const cancel = new AbortController();
    const reading = web.read(web.at("site.test", "/hang"), {}, "c", cancel.signal);
    setTimeout(() => cancel.abort(), 100);
    const startMs = performance.now();
    await assert.rejects(reading, { code: "cancelled" });
    assert.ok(performance.now() - startMs < 1000);
  });

  it("is refused when the client reads too many at once", async () => {
    const cancel = new AbortController();
    const reads = Array.from({ length: 33 }, () => web.read(web.at("site.test", "/hang"), {}, "flood", cancel.signal));
    const results = Promise.allSettled(reads);
    await sleep(300);
    assert.equal((await web.read(web.at("site2.test", "/a"), {}, "other")).title, "T");
    cancel.abort();
    const codes = (await results).map((result) => (result as PromiseRejectedResult).reason.code as string);
    assert.deepEqual(
      [codes.filter((code) => code === "queue_full").length, codes.filter((code) => code === "cancelled").length],
      [1, 32],
    );
  });
});

/** Pages from which extraction takes too much time, memory or stack. */
const harmful: Readonly<Record<string, readonly [page: () => string, expected: RegExp]>> = {
  "is nested deeply": [() => `${"<div>".repeat(200_000)}x`, /the page cannot be read/],
  "has a million elements": [() => "<p>".repeat(1_000_000), /the page cannot be read/],
  "has junk in junk": [
    () => `${"<div class=nav>a".repeat(3000)}${"<i class=nav>b</i>".repeat(60_000)}`,
    /the page cannot be read/,
  ],
  "has spaces without end": [
    () => `<pre>${"x".concat(" ".repeat(400_000)).repeat(5)}x</pre>`,
    /the page cannot be read/,
  ],
};

describe("a page that is made to harm the reader", () => {
  for (const [name, [page, expected]] of Object.entries(harmful)) {
    it(`ends by itself and delays nobody: it ${name}`, async () => {
      const web = await startWebRig();
      const delay = monitorEventLoopDelay({ resolution: 5 });
      try {
        web.answers.set("/bad", { body: page() });
        web.answers.set("/good", { body: article("Good text.") });
        await web.read(web.at("site.test", "/good"));
        delay.enable();
        const bad = () => assert.rejects(web.read(web.at("bad.test", "/bad"), {}, "attacker"), expected);
        const checked = Promise.all([bad(), bad()]);
        const startMs = performance.now();
        for (let reads = 0; reads < 3; reads++) {
          assert.equal((await web.read(web.at("site.test", "/good"), {}, "user")).content, "Good text.");
        }
        const tookMs = performance.now() - startMs;
        await checked;
        delay.disable();
        assert.ok(tookMs < 4000, `${tookMs} ms`);
        const lateMs = delay.percentile(99) / 1e6;
        assert.ok(lateMs < 100, `the main thread was late by ${lateMs} ms`);
        assert.equal((await web.read(web.at("site.test", "/good"), {}, "user")).content, "Good text.");
      } finally {
        await web.stop();
      }
    });
  }

  it("is read if it only has a huge attribute", async () => {
    const web = await startWebRig();
    web.answers.set("/attribute", { body: `<main><p title="${"a".repeat(4_000_000)}">Text.</p></main>` });
    assert.equal((await web.read(web.at("site.test", "/attribute"))).content, "Text.");
    await web.stop();
  });
});
