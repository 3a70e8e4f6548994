// MCP conformance suite against troupe's MCP client. The scenarios auth/… are omitted: they test OAuth, but the client
// only sends the bearer token from its settings.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createRequire } from "node:module";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";

const suite = createRequire(import.meta.url).resolve("@modelcontextprotocol/conformance/dist/index.js");
const client = fileURLToPath(new URL("../../fixtures/mcp/conformance-client.js", import.meta.url));

/** Runs a scenario and returns its summary. */
function summaryOf(scenario: string): Promise<string> {
  const command = `${process.execPath} ${client}`;
  const args = [suite, "client", "--command", command, "--scenario", scenario];
  return new Promise((resolve) => {
    execFile(process.execPath, args, { timeout: 40_000 }, (_, stdout, stderr) => {
      const output = `${stdout}${stderr}`;
      resolve(/Passed: .*/.exec(output)?.[0] ?? output);
    });
  });
}

describe("the conformance suite of clients", () => {
  for (const [scenario, checks] of [
    ["initialize", 1],
    ["tools_call", 1],
    ["elicitation-sep1034-client-defaults", 5],
    ["sse-retry", 3],
  ] as const) {
    it(`passes the scenario ${scenario}`, async () => {
      assert.equal(await summaryOf(scenario), `Passed: ${checks}/${checks}, 0 failed, 0 warnings`);
    });
  }
});
