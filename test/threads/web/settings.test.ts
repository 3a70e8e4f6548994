// Web search built from the settings: with the address rules of a real server, and with the configured embedding
// model.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it } from "node:test";
import { defaultWebOptions } from "../../../actors/api/agent/web.ts";
import type { EmbedRequest, Inference } from "../../../actors/api/inference.ts";
import { openWeb } from "../../../cli/assembly/agents/web.ts";
import { resolveConfig } from "../../../cli/config/config.ts";
import { createLogger } from "../../../runtime/log/log.ts";

const log = createLogger({ level: "error", format: "text" });
const never = new AbortController().signal;

function configOf(flags: Readonly<Record<string, string>>, environment: Readonly<Record<string, string>> = {}) {
  const all = { "--enable-search": true as const, "--alias": "local", "--model-id": "m", ...flags };
  return resolveConfig({ command: "serve", flags: all, environment, defaultModel: "m" });
}

describe("settings of web search", () => {
  const refused: Readonly<Record<string, readonly [flags: Readonly<Record<string, string>>, message: RegExp]>> = {
    "SearXNG without its address": [{ "--search-provider": "searxng" }, /expects search_url.*; got none/],
    "Brave without a key": [{ "--search-provider": "brave" }, /expects a key in the variable SEARCH_API_KEY/],
    "Tavily without a key": [{ "--search-provider": "tavily" }, /expects a key in the variable SEARCH_API_KEY/],
    "an embedding model that is not served": [
      { "--search-embedding-model": "embedding-gemma" },
      /expects the id or alias of a configured model \(local\); got "embedding-gemma"/,
    ],
  };
  for (const [name, [flags, message]] of Object.entries(refused)) {
    it(`refuse ${name}`, () => {
      assert.throws(() => configOf(flags), { code: "config_invalid", message });
    });
  }

  it("take the key from the environment alone", () => {
    assert.equal(configOf({}, { SEARCH_API_KEY: "k" }).search.apiKey, "k");
    assert.throws(() => configOf({ "--search-api-key": "k" }), /search-api-key/);
  });

  it("reach a provider on this machine, but no page on it, and rank with the embedding model", async () => {
    const paths: string[] = [];
    const server = createServer(({ url = "" }, response) => {
      paths.push(url.split("?")[0] ?? "");
      const page = (name: string) => ({
        title: name,
        url: `http://127.0.0.1:${port}/page/${name}`,
        content: `about ${name}`,
      });
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ results: [page("one"), page("two")] }));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const requests: EmbedRequest[] = [];
    const inference: Pick<Inference, "embed"> = {
      embed: async (request) => {
        requests.push(request);
        const ofPassages = [Float32Array.of(0, 1), Float32Array.of(1, 0)];
        return { vectors: request.inputType === "query" ? [Float32Array.of(1, 0)] : ofPassages, promptTokens: 3 };
      },
    };
    const flags = {
      "--search-provider": "searxng",
      "--search-url": `http://127.0.0.1:${port}`,
      "--search-embedding-model": "local",
    };
    const web = await openWeb(configOf(flags), inference, log);
    try {
      const request = { query: "which", options: defaultWebOptions, client: "c" };
      const found = await web.search(request, never);
      assert.deepEqual(
        found.map(({ content }) => content),
        ["about two", "about one"],
      );
      assert.deepEqual(paths, ["/search"]);
      assert.deepEqual(
        requests.map(({ model, client, inputType, inputs }) => [
          ...[model, client, inputType],
          new TextDecoder().decode(inputs.values as Uint8Array),
        ]),
        [
          ["local", "c", "query", "which"],
          ["local", "c", "document", "about oneabout two"],
        ],
      );
      const page = { url: `http://127.0.0.1:${port}/page/one`, options: defaultWebOptions, client: "c" };
      await assert.rejects(web.read(page, never), /expected a URL with one of the ports 80, 443, 8080, 8443/);
      await assert.rejects(web.read({ ...page, url: "http://localhost/" }, never), /is not public/);
    } finally {
      await web.stop(5000);
      server.close();
    }
  });
});
