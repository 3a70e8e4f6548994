// MCP sessions in the state that replicas share: their expiry.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { McpSessionStore, mcpSessionLimits } from "../../../../actors/state/shared/mcp-session-store.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";

const MINUTE_MS = 60_000;
const idleMs = 30 * MINUTE_MS;

describe("an MCP session that replicas share", () => {
  it("stays for its idle time after each use, and ends when it is idle for longer", async () => {
    let now = 0;
    const clock = (): number => now;
    const sessions = new McpSessionStore(new TableStore(new MemoryTables(), mcpSessionLimits, clock), clock);
    await sessions.put({ id: "s", client: "c", initialize: "{}", idleMs });
    for (const pauseMinutes of [1, 29, 14, 29, 7, 29, 10, 29]) {
      now += pauseMinutes * MINUTE_MS;
      assert.notEqual(await sessions.find({ id: "s", idleMs }), null, `${now / MINUTE_MS} min`);
    }
    now += 46 * MINUTE_MS;
    assert.equal(await sessions.find({ id: "s", idleMs }), null);
  });
});
