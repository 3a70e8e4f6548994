// MCP conformance suite against troupe's MCP server, on every HTTP server implementation that loads here.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { describe, it } from "node:test";
import { conformanceServer } from "../../fixtures/conformance-tools.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { type McpTestServer, startMcp } from "../../fixtures/mcp-server.ts";

/** Runs the suite. Returns whether each scenario passed, by scenario name. */
function conformance({ url }: McpTestServer): Promise<ReadonlyMap<string, boolean>> {
  const require = createRequire(import.meta.url);
  const suite = require.resolve("@modelcontextprotocol/conformance/dist/index.js");
  return new Promise((resolve) => {
    execFile(process.execPath, [suite, "server", "--url", url], { timeout: 25_000 }, (_, stdout) => {
      const lines = stdout.matchAll(/^\S ([\w-]+): (\d+) passed, (\d+) failed/gm);
      resolve(new Map([...lines].map(([, name = "", passed, failed]) => [name, passed !== "0" && failed === "0"])));
    });
  });
}

describe("the conformance suite", () => {
  // The other scenarios test prompts, resources, completion and log levels, which this server does not declare.
  const ofAnyServer = [
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
  ];
  const ofNamedTools = [
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-with-logging",
    "tools-call-error",
    "tools-call-with-progress",
    "tools-call-sampling",
    "tools-call-elicitation",
    "logging-set-level",
  ];

  for (const edge of loadableEdges()) {
    it(`passes as far as it applies, on the ${edge} edge`, async () => {
      const server = await startMcp(edge);
      const verdicts = await conformance(server);
      await server.stop();
      for (const name of ofAnyServer) assert.equal(verdicts.get(name), true, name);
    });

    it(`passes for the tools it names, on the ${edge} edge`, async () => {
      const server = await startMcp(edge, {}, conformanceServer);
      const verdicts = await conformance(server);
      await server.stop();
      for (const name of [...ofAnyServer, ...ofNamedTools]) assert.equal(verdicts.get(name), true, name);
    });
  }
});
