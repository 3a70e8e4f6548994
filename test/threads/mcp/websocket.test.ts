import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { maxResultBytes } from "../../../actors/api/agent/tools.ts";
import { startWebSocketServer, type WebSocketTestServer } from "../../fixtures/mcp/websocket-server.ts";
import { McpRig, serverSettings, until } from "./rig.ts";

for (const knowsSubprotocol of [true, false]) {
  describe(`an MCP server over WebSockets ${knowsSubprotocol ? "with" : "without"} the subprotocol "mcp"`, () => {
    let server: WebSocketTestServer;
    let rig: McpRig;
    before(async () => {
      server = await startWebSocketServer(knowsSubprotocol);
      const headers = { authorization: "Bearer key" };
      rig = new McpRig([serverSettings("s", { type: "websocket", url: server.url, headers })]);
      await rig.start(1);
    });
    after(async () => {
      await rig.stop();
      await server.stop();
    });

    it("has its tools called, and gets the headers", async () => {
      assert.deepEqual(rig.names(), ["add", "fill"]);
      assert.equal((await rig.call("add", { a: 1, b: 2 })).content, "3");
      assert.equal(server.keys.at(-1), "Bearer key");
    });

    it("has long results cut, with a note", async () => {
      const { content } = await rig.call("fill", { bytes: 2 ** 20 });
      assert.ok(Buffer.byteLength(content) <= maxResultBytes);
      assert.match(content, /\[\d+ bytes left out\]/);
    });

    it("is disconnected when a message is too large, and connected again", async () => {
      await assert.rejects(rig.call("fill", { bytes: 17 * 2 ** 20 }), /it sent a message of more than 16 MiB/);
      await until(() => rig.client.connected === 1, "the server is connected again");
      assert.equal((await rig.call("add", { a: 1, b: 2 })).content, "3");
    });

    it("is disconnected when it sends what is no message, and connected again", async () => {
      server.sendText("hello");
      await until(
        () => rig.lines.some((line) => line.includes("a frame that is not a JSON-RPC message")),
        "the reason",
      );
      await until(() => rig.client.connected === 1, "the server is connected again");
    });

    it("that closes the connection is connected again", async () => {
      server.disconnect();
      await until(() => rig.client.connected === 0, "the end is seen");
      await until(() => rig.client.connected === 1, "the server is connected again");
      assert.equal((await rig.call("add", { a: 1, b: 2 })).content, "3");
    });
  });
}
