// Web search on the web thread: formats and failures of the search providers, and the page content that a search
// returns.
import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { describe, it, type TestContext } from "node:test";
import { ServerError } from "../../../runtime/errors.ts";
import { createLogger } from "../../../runtime/log/log.ts";
import { startWebRig, type WebRig, type WebRigOptions } from "../../fixtures/actors/web-rig.ts";

const location = { city: "Lyon", country: "fr", region: null, timezone: "Europe/Paris" };
const key = "sk-very-secret-key";

async function rigOf(t: TestContext, options: WebRigOptions): Promise<WebRig> {
  const web = await startWebRig(options);
  t.after(() => web.stop());
  return web;
}

interface Asked {
  readonly query: URLSearchParams;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

/** Responds to searches at a path with `answer`. Returns a list to which each received request is added. */
function answerSearches(
  web: WebRig,
  path: string,
  answer: string,
  type = "application/json",
  status = 200,
): readonly Asked[] {
  const asked: Asked[] = [];
  web.answers.set(path, (request, response, body) => {
    asked.push({ query: new URL(request.url ?? "", "http://x").searchParams, headers: request.headers, body });
    response.writeHead(status, { "content-type": type }).end(answer);
  });
  return asked;
}

const html = (text: string): string => `<html><body><main>${text}</main></body></html>`;
const results = (web: WebRig, field = "content") =>
  ["one", "two"].map((name) => ({
    title: `Page <b>${name}</b>`,
    url: web.at(`${name}.test`, "/"),
    [field]: `About ${name}`,
  }));

function answerPages(web: WebRig): void {
  web.answers.set("one.test/", { body: html("<p>Nothing that matters is on this page, only filler words.</p>") });
  web.answers.set("two.test/", { body: html("<h1>Tides</h1><p>The tide at the pier is highest at noon.</p>") });
}

/** Asserts that a search returns both pages, with the second page first, because it contains the answer. */
async function checkFound(web: WebRig): Promise<void> {
  answerPages(web);
  const found = await web.search("when is the tide highest", { location });
  assert.deepEqual(found, [
    {
      title: "Page two",
      url: web.at("two.test", "/"),
      description: "About two",
      content: "# Tides\n\nThe tide at the pier is highest at noon.",
    },
    {
      title: "Page one",
      url: web.at("one.test", "/"),
      description: "About one",
      content: "Nothing that matters is on this page, only filler words.",
    },
  ]);
}

describe("a search provider", () => {
  it("can be SearXNG", async (t) => {
    const web = await rigOf(t, { provider: "searxng" });
    const asked = answerSearches(web, "/search", JSON.stringify({ results: results(web) }));
    await checkFound(web);
    assert.deepEqual(Object.fromEntries(asked[0]?.query ?? []), {
      q: "when is the tide highest",
      format: "json",
      language: "fr-FR",
    });
  });

  it("can be Brave, with its key", async (t) => {
    const web = await rigOf(t, { provider: "brave", apiKey: key });
    const asked = answerSearches(
      web,
      "/res/v1/web/search",
      JSON.stringify({ web: { results: results(web, "description") } }),
    );
    await checkFound(web);
    const { query, headers } = asked[0] as Asked;
    assert.deepEqual([query.get("country"), query.get("count")], ["FR", "10"]);
    assert.deepEqual([headers["x-subscription-token"], headers["x-loc-timezone"]], [key, "Europe/Paris"]);
  });

  it("can be Tavily, with its key", async (t) => {
    const web = await rigOf(t, { provider: "tavily", apiKey: key, results: 4 });
    const asked = answerSearches(web, "/search", JSON.stringify({ results: results(web) }));
    await checkFound(web);
    assert.equal(asked[0]?.headers.authorization, `Bearer ${key}`);
    assert.deepEqual(JSON.parse(asked[0]?.body ?? ""), {
      query: "when is the tide highest",
      max_results: 4,
      country: "france",
    });
  });

  it("can be DuckDuckGo", async (t) => {
    const web = await rigOf(t, { provider: "duckduckgo" });
    const links = results(web).map(
      ({ title, url, content }) =>
        `<div class="result"><a class="result__a" href="//duckduckgo.com/l/?uddg=${encodeURIComponent(url)}">${title}</a><a class="result__snippet">${content}</a></div>`,
    );
    const asked = answerSearches(web, "/html/", `<div id="links">${links.join("")}</div>`, "text/html");
    await checkFound(web);
    assert.deepEqual([asked[0]?.query.get("q"), asked[0]?.query.get("kl")], ["when is the tide highest", "fr-fr"]);
  });

  it("is asked only for allowed domains, and other results are left out", async (t) => {
    const web = await rigOf(t, {});
    answerPages(web);
    const asked = answerSearches(web, "/search", JSON.stringify({ results: results(web) }));
    const found = await web.search("tide", { allowedDomains: ["two.test"], blockedDomains: ["bad.test"] });
    assert.deepEqual(
      found.map(({ title }) => title),
      ["Page two"],
    );
    assert.equal(asked[0]?.query.get("q"), "tide site:two.test -site:bad.test");
    assert.equal(
      web.requests.some((request) => request.startsWith("one.test")),
      false,
    );
  });
});

describe("a failure of a search provider", () => {
  const failures: Readonly<
    Record<
      string,
      readonly [options: WebRigOptions, path: string, answer: string, type: string, status: number, expected: RegExp]
    >
  > = {
    "is a page that asks for a check": [
      { provider: "duckduckgo" },
      "/html/",
      '<div class="anomaly-modal__title">bots</div>',
      "text/html",
      202,
      /duckduckgo .* whether this server is human; try again later, or set another search_provider/,
    ],
    "is a page without results": [
      { provider: "duckduckgo" },
      "/html/",
      "<p>hello",
      "text/html",
      200,
      /expected a page of results/,
    ],
    "is no JSON": [{}, "/search", "<html>", "text/html", 200, /searxng .* expected JSON/],
    "is JSON of another form": [
      {},
      "/search",
      '{"results":{"a":1}}',
      "application/json",
      200,
      /expected a list of results/,
    ],
    "is a wrong key": [
      { provider: "brave", apiKey: key },
      "/res/v1/web/search",
      "{}",
      "application/json",
      401,
      /got 401; check its key \(SEARCH_API_KEY\)/,
    ],
    "is its limit": [
      { provider: "tavily", apiKey: key },
      "/search",
      "{}",
      "application/json",
      429,
      /got 429; its limit of requests is reached/,
    ],
    "is a missing address": [{ provider: "brave", apiKey: key }, "/none", "", "text/html", 200, /got 404/],
  };
  for (const [name, [options, path, answer, type, status, expected]] of Object.entries(failures)) {
    it(`${name}, is reported by name and without the key`, async (t) => {
      const web = await rigOf(t, options);
      answerSearches(web, path, answer, type, status);
      await assert.rejects(web.search("tide"), (error: ServerError) => {
        assert.equal(error.code, "peer_gone");
        assert.match(error.message, expected);
        assert.ok(!`${error.message}${error.stack}`.includes(key));
        return true;
      });
    });
  }

  it("sends a key to no other address", async (t) => {
    const web = await rigOf(t, { provider: "tavily", apiKey: key });
    web.answers.set("/search", (_request, response) =>
      response.writeHead(307, { location: web.at("evil.test", "/steal") }).end(),
    );
    await assert.rejects(web.search("tide"), /at most 0 redirects/);
    assert.equal(
      web.requests.some((request) => request.startsWith("evil.test")),
      false,
    );
  });

  it("is an answer with broken entries, which are left out", async (t) => {
    const web = await rigOf(t, {});
    const list = [
      null,
      7,
      "x",
      {},
      { url: "no url" },
      { url: "javascript:alert(1)" },
      { url: web.at("two.test", "/"), title: 5 },
    ];
    answerSearches(web, "/search", JSON.stringify({ results: list }));
    answerPages(web);
    const found = await web.search("tide");
    assert.deepEqual(
      found.map(({ url, title }) => [url, title]),
      [[web.at("two.test", "/"), "Tides"]],
    );
  });

  it("ends with a cancelled search", async (t) => {
    const web = await rigOf(t, {});
    web.answers.set("/search", () => {});
    const cancel = new AbortController();
    setTimeout(() => cancel.abort(), 100);
    await assert.rejects(web.search("tide", {}, cancel.signal), { code: "cancelled" });
  });
});

describe("a search", () => {
  it("keeps the description of a page that cannot be read", async (t) => {
    const web = await rigOf(t, {});
    const urls = [web.at("gone.test", "/"), web.at("inner.test", "/"), "http://[::1]/", web.at("two.test", "/")];
    answerSearches(
      web,
      "/search",
      JSON.stringify({ results: urls.map((url, i) => ({ title: `t${i}`, url, content: `about ${i}` })) }),
    );
    answerPages(web);
    const found = await web.search("tide highest");
    assert.deepEqual(found.map(({ title }) => title).sort(), ["t0", "t1", "t2", "t3"]);
    assert.match(found[0]?.content ?? "", /highest at noon/);
    for (const { title, description, content } of found.slice(1)) assert.equal(content, description, title);
  });

  it("shares the context size of the request among its results", async (t) => {
    const web = await rigOf(t, {});
    const list = Array.from({ length: 10 }, (_, i) => ({
      title: `t${i}`,
      url: web.at(`p${i}.test`, "/long"),
      content: "",
    }));
    answerSearches(web, "/search", JSON.stringify({ results: list }));
    web.answers.set("/long", {
      body: html(Array.from({ length: 400 }, (_, i) => `<p>Sentence ${i} about the tide at the pier.</p>`).join("")),
    });
    for (const [contextSize, limit] of [
      ["low", 16_384],
      ["medium", 32_768],
      ["high", 65_536],
    ] as const) {
      const found = await web.search("tide", { contextSize });
      const size = found.reduce((sum, { content }) => sum + content.length, 0);
      assert.ok(size <= limit && size > limit - 80, `${contextSize}: ${size}`);
      assert.ok(found.every(({ content }) => content.length > 0));
    }
  });

  it("asks for embeddings on the main thread, and ranks by words if the model fails", async (t) => {
    const lines: string[] = [];
    const log = createLogger({ level: "warn", format: "json" }, { write: (line) => void lines.push(line) });
    let fails = false;
    const web = await rigOf(t, {
      log,
      embed: async (texts, inputType, client) => {
        assert.equal(client, "c");
        assert.equal(inputType, texts[0] === "q" || texts[0] === "tide" ? "query" : "document");
        if (fails) throw new ServerError("model_loading", "the model is being loaded");
        return texts.map((text) =>
          text === "q" || text.startsWith("Nothing") ? Float32Array.of(1, 0) : Float32Array.of(0, 1),
        );
      },
    });
    answerSearches(web, "/search", JSON.stringify({ results: results(web) }));
    answerPages(web);
    assert.deepEqual(
      (await web.search("q")).map(({ title }) => title),
      ["Page one", "Page two"],
    );
    fails = true;
    assert.deepEqual(
      (await web.search("tide")).map(({ title }) => title),
      ["Page two", "Page one"],
    );
    assert.match(lines.join(""), /the model is being loaded.*ranked by their words/);
  });
});
