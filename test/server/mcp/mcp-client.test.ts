// MCP server with the official client and a fake inference, on real sockets of every HTTP server implementation that loads
// here.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { Client, type ProgressCallback, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { z } from "zod";
import { done, failure, finish, hello, reasoning, text, toolCall } from "../../fixtures/fakes/fake-inference.ts";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { type McpTestServer, messages, never, post, startMcp, until } from "../../fixtures/mcp-server.ts";

const anything = z.looseObject({});

async function connected({
  url,
}: McpTestServer): Promise<{ client: Client; transport: StreamableHTTPClientTransport }> {
  const client = new Client({ name: "test", version: "1" });
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return { client, transport };
}

for (const edge of loadableEdges()) {
  describe(`the official MCP client on the ${edge} edge`, async () => {
    const server = await startMcp(edge);
    after(() => server.stop());
    const { client, transport } = await connected(server);
    after(() => client.close());

    it("initializes a session and pings", async () => {
      assert.deepEqual(client.getServerVersion(), { name: "troupe", version: "1.2.3" });
      assert.deepEqual(client.getServerCapabilities(), { tools: {} });
      assert.match(client.getInstructions()!, /chat/);
      assert.match(transport.sessionId!, /^[0-9a-f-]{36}$/);
      assert.deepEqual(await client.ping(), {});
    });

    it("lists one tool per capability, with the fields of its route", async () => {
      const { tools } = await client.listTools();
      assert.deepEqual(
        tools.map(({ name }) => name),
        ["chat", "embed"],
      );
      const { properties, required } = tools[0]!.inputSchema;
      assert.deepEqual(required, ["messages"]);
      assert.ok(properties!.temperature);
      assert.equal(properties!.stream, undefined);
      // Optional fields have plain types instead of unions with null, because an inspector shows input fields only for plain
      // types.
      for (const [name, type] of [
        ["max_tokens", "integer"],
        ["temperature", "number"],
        ["seed", "integer"],
        ["logprobs", "boolean"],
      ]) {
        assert.equal((properties![name!] as { type?: unknown }).type, type, name);
      }
      assert.ok(!JSON.stringify(tools).includes('"null"'));
    });

    it("chats", async () => {
      const result = await client.callTool({ name: "chat", arguments: { messages, max_tokens: 7 } });
      assert.deepEqual(result.content, [{ type: "text", text: "Hello world" }]);
      assert.equal(result.structuredContent, undefined);
      assert.deepEqual(result._meta?.finish_reasons, ["stop"]);
      assert.equal(server.inference.lastRun.request.maxTokens, 7);
    });

    it("embeds", async () => {
      const result = await client.callTool({ name: "embed", arguments: { input: ["a", "b"] } });
      const { data } = result.structuredContent as { data: { embedding: number[] }[] };
      assert.deepEqual(
        data.map(({ embedding }) => embedding),
        [
          [0, 0.5],
          [1, 0.5],
        ],
      );
    });

    it("reports progress to clients that request it", async () => {
      server.inference.script = function* () {
        for (const word of ["one ", "two ", "three"]) {
          yield [text(word)];
          yield { waitMs: 120 };
        }
        yield [finish(), done];
      };
      const told: [number, string | undefined][] = [];
      const onprogress: ProgressCallback = ({ progress, message }) => {
        told.push([progress, message]);
      };
      const result = await client.callTool({ name: "chat", arguments: { messages } }, { onprogress });
      server.inference.script = hello;
      assert.deepEqual(result.content, [{ type: "text", text: "one two three" }]);
      assert.deepEqual(told, [
        [4, "one "],
        [8, "two "],
        [13, "three"],
      ]);
    });

    it("returns the calls that the model makes", async () => {
      server.inference.script = function* () {
        yield [...toolCall("add", ['{"a":', "1}"]), finish("tool_calls"), done];
      };
      const tools = [{ type: "function", function: { name: "add", parameters: { type: "object" } } }];
      const result = await client.callTool({ name: "chat", arguments: { messages, tools } });
      server.inference.script = hello;
      const { choices } = result.structuredContent as {
        choices: { message: { tool_calls: { function: object }[] } }[];
      };
      assert.deepEqual(choices[0]!.message.tool_calls[0]!.function, { name: "add", arguments: '{"a":1}' });
      // The text content repeats the result, for clients that read only text.
      const [said] = result.content;
      assert.deepEqual(JSON.parse(said?.type === "text" ? said.text : ""), {
        tool_calls: choices[0]!.message.tool_calls,
      });
    });

    it("returns the reasoning of a model that gave no answer", async () => {
      server.inference.script = () => [[reasoning("Let me see"), finish("length"), done]];
      const { content } = await client.callTool({ name: "chat", arguments: { messages } });
      server.inference.script = hello;
      assert.match(JSON.stringify(content), /reasoned but given no answer.*finish_reason length.*Let me see/);
    });

    it("refuses to ask for permissions, as nobody would be asked", async () => {
      const { tools } = await client.listTools();
      for (const name of ["agent_permission", "code_execution_permission"]) {
        assert.deepEqual(tools[0]!.inputSchema.properties![name], { type: "string", enum: ["auto", "deny"] });
        const before = server.inference.runs.length;
        const asking = await client.callTool({ name: "chat", arguments: { messages, [name]: "ask" } });
        assert.equal(asking.isError, true);
        assert.match(JSON.stringify(asking.content), new RegExp(`${name}: expected .*auto`));
        assert.equal(server.inference.runs.length, before);
      }
      const auto = await client.callTool({ name: "chat", arguments: { messages, agent_permission: "auto" } });
      assert.notEqual(auto.isError, true);
    });

    it("cancels the generation when the call is cancelled", async () => {
      server.inference.script = never;
      const aborter = new AbortController();
      const call = client.callTool({ name: "chat", arguments: { messages } }, { signal: aborter.signal });
      const run = await server.nextRun();
      aborter.abort();
      await assert.rejects(call);
      await until(() => run.state === "cancelled");
      server.inference.script = hello;
      assert.deepEqual(await client.ping(), {});
    });

    it("cancels the generation when the connection is lost", async () => {
      server.inference.script = never;
      const other = await connected(server);
      const call = other.client.callTool({ name: "chat", arguments: { messages } });
      call.catch(() => {});
      const run = await server.nextRun();
      await other.client.close();
      await until(() => run.state === "cancelled");
      server.inference.script = hello;
    });

    it("answers failures of a tool as its result, and of the protocol as errors", async () => {
      const wrong = await client.callTool({ name: "chat", arguments: { messages, temperature: 9 } });
      assert.equal(wrong.isError, true);
      assert.match(JSON.stringify(wrong.content), /temperature/);
      server.inference.script = function* () {
        yield [text("Hel")];
        yield [failure("model_failed")];
      };
      const failed = await client.callTool({ name: "chat", arguments: { messages } });
      server.inference.script = hello;
      assert.deepEqual(failed.content, [{ type: "text", text: "scripted model_failed" }]);
      assert.equal(failed.isError, true);
      await assert.rejects(client.callTool({ name: "sing" }), /expected one of the tools.*got "sing"/);
      await assert.rejects(client.request({ method: "no/such" }, anything), { code: -32601 });
    });

    it("serves two sessions at once, each its own", async () => {
      const other = await connected(server);
      assert.notEqual(other.transport.sessionId, transport.sessionId);
      const call = { name: "chat", arguments: { messages } };
      const [mine, theirs] = await Promise.all([client.callTool(call), other.client.callTool(call)]);
      assert.deepEqual(mine.content, theirs.content);
      const ended = { "mcp-session-id": other.transport.sessionId! };
      await other.transport.terminateSession();
      assert.equal((await post(server, { jsonrpc: "2.0", id: 1, method: "ping" }, ended)).status, 404);
      assert.deepEqual(await client.ping(), {});
      await other.client.close();
    });
  });
}
