// `troupe agent`: a tool of an MCP server asks the user a question (elicitation).
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { User } from "./rig.ts";

const program = fileURLToPath(new URL("../../fixtures/mcp/asking-server.js", import.meta.url));

describe("a question of an MCP server", () => {
  let user: User;
  let flags: readonly string[] = [];
  beforeEach(() => {
    user = new User();
    const file = join(user.base, "mcp.json");
    writeFileSync(file, JSON.stringify({ mcpServers: { asking: { command: process.execPath, args: [program] } } }));
    flags = ["--sandbox", "off", "--mcp-config", file];
    user.script({ calls: [["weather", {}]] }, "It rains.");
  });
  afterEach(() => user.leave());

  it("is asked on the terminal, without control characters", async () => {
    const terminal = user.terminal(["agent", ...flags, "weather?"]);
    await terminal.sees(/run it\?/);
    terminal.type("y\r");
    await terminal.sees(/Which city\?.*answer it\?/s);
    terminal.type("y\r");
    await terminal.sees(/City.*where.*:/s);
    terminal.type("Bonn\r");
    await terminal.sees(/It rains\./);
    assert.equal(await terminal.ended, 0);
    assert.match(user.lastSeen(), /"action":"accept","content":\{"city":"Bonn"\}/);
    assert.ok(
      !terminal.raw.includes("\u001b[2J") && !terminal.raw.includes("\u001b]") && !terminal.raw.includes("\u202e"),
    );
  });

  it("is declined at once if there is nobody to ask", async () => {
    const { code, stdout, stderr } = await user.run("agent", "--yes", ...flags, "weather?");
    assert.deepEqual([code, stdout], [0, "It rains.\n"], stderr);
    assert.match(user.lastSeen(), /decline|cancel|refused|not supported/);
  });
});
