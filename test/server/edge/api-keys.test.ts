// API keys on every HTTP front end: which requests need a key, how requests without a key are rejected, and that keys are never
// logged.
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { after, describe, it } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { ApiKeys } from "../../../http/server/access/api-keys.ts";
import { loadableEdges, startServer } from "../../fixtures/http-server.ts";
import { initialize, post, startMcp } from "../../fixtures/mcp-server.ts";
import { SocketClient } from "../../fixtures/socket-client.ts";

const key = "sk-0123456789abcdef0123456789abcdef";
const wrongKey = "sk-wrong-9abcdef0123456789abcdef";
const messages = [{ role: "user" as const, content: "hi" }];

for (const edge of loadableEdges()) {
  describe(`a server with API keys on ${edge}`, async () => {
    const apiKeys = new ApiKeys(["first-key", key]);
    const server = await startServer(edge, { apiKeys });
    after(() => server.stop());
    const chat = (headers: Readonly<Record<string, string>>, path = "/v1/chat/completions") =>
      fetch(server.url + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify({ messages, max_tokens: 8 }),
      });

    it("takes each key in both headers", async () => {
      const given = [{ authorization: `Bearer ${key}` }, { authorization: "bearer first-key" }, { "x-api-key": key }];
      for (const headers of given) assert.equal((await chat(headers)).status, 200);
      const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: key, maxRetries: 0 });
      const answer = await openai.chat.completions.create({ model: "default", messages });
      assert.equal(answer.choices[0]?.message.content, "Hello world");
    });

    it("answers 404 where clients look for OAuth metadata after a 401", async () => {
      for (const path of ["oauth-protected-resource/mcp", "oauth-authorization-server", "openid-configuration"]) {
        const answer = await fetch(`${server.url}/.well-known/${path}`);
        assert.deepEqual([answer.status, answer.headers.get("www-authenticate")], [404, null], path);
        assert.ok(!(await answer.text()).includes("/v1/"), "who has no key is not told what the server has");
      }
      assert.equal((await chat({}, "/.well-known/oauth-authorization-server")).status, 401, "no body is read");
    });

    it("answers 401 in the format of each protocol, and names no key", async () => {
      for (const headers of [{}, { authorization: `Bearer ${wrongKey}` }, { "x-api-key": `${key}x` }]) {
        const refused = await chat(headers);
        assert.equal(refused.status, 401);
        assert.equal(refused.headers.get("www-authenticate"), "Bearer");
        const { error } = (await refused.json()) as { error: Record<string, unknown> };
        assert.equal(error.code, "invalid_api_key");
        assert.equal(error.type, "invalid_request_error");
        assert.ok(!String(error.message).includes("sk-"));
      }
      const openai = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: wrongKey, maxRetries: 0 });
      await assert.rejects(openai.models.list(), OpenAI.AuthenticationError);
      const anthropic = new Anthropic({ baseURL: server.url, apiKey: wrongKey, maxRetries: 0 });
      const asked = anthropic.messages.create({ model: "default", max_tokens: 8, messages });
      await assert.rejects(asked, (error: unknown) => {
        assert.ok(error instanceof Anthropic.AuthenticationError);
        return error.type === "authentication_error";
      });
      const unknown = await fetch(`${server.url}/v1/nothing`, { headers: { "anthropic-version": "2023-06-01" } });
      assert.equal(unknown.status, 401);
      assert.equal(((await unknown.json()) as { type: string }).type, "error");
    });

    it("serves health, readiness, documents and preflights without a key, and nothing else", async () => {
      for (const path of ["/health", "/", "/ready", "/docs", "/api-doc/openapi.json"]) {
        assert.equal((await fetch(server.url + path)).status, 200, path);
      }
      assert.equal((await fetch(`${server.url}/v1/models`, { method: "OPTIONS" })).status, 204);
      for (const path of ["/metrics", "/v1/models", "/v1/system/info", "/v1/lora_adapters", "/nothing"]) {
        assert.equal((await fetch(server.url + path)).status, 401, path);
      }
      assert.equal((await fetch(`${server.url}/health`, { method: "POST" })).status, 401);
    });

    it("describes the key in the API document", async () => {
      const document = (await (await fetch(`${server.url}/api-doc/openapi.json`)).json()) as {
        security: object[];
        components: { securitySchemes: object };
        paths: Record<string, Record<string, { security?: object[]; responses: Record<string, object> }>>;
      };
      assert.deepEqual(document.security, [{ bearer: [] }, { apiKey: [] }]);
      assert.deepEqual(Object.keys(document.components.securitySchemes), ["bearer", "apiKey"]);
      assert.deepEqual(document.paths["/health"]?.get?.security, []);
      assert.ok(document.paths["/v1/models"]?.get?.responses["401"]);
      assert.equal(document.paths["/metrics"]?.get?.security, undefined);
    });

    it("refuses a body before it is read", async () => {
      const { hostname, port } = new URL(server.url);
      const socket = connect({ host: hostname, port: Number(port) });
      socket.write(
        `POST /v1/chat/completions HTTP/1.1\r\nHost: ${hostname}\r\ncontent-type: application/json\r\ncontent-length: 40000000\r\n\r\n{`,
      );
      const [first] = await once(socket, "data");
      assert.match(`${first}`, /^HTTP\/1\.1 401 /);
      socket.destroy();
    });

    it("opens a WebSocket only with a key, and refuses its messages when the key is withdrawn", async () => {
      await assert.rejects(SocketClient.open(server.url), /401/);
      const client = await SocketClient.open(server.url, { authorization: `Bearer ${key}` });
      client.send({ input: "hi" });
      assert.equal((await client.turn()).at(-1)?.type, "response.completed");
      apiKeys.replace(["first-key"]);
      client.send({ input: "hi" });
      const [refused] = await client.turn();
      assert.equal(refused?.status, 401);
      assert.equal(refused?.error?.code, "invalid_api_key");
      apiKeys.replace(["first-key", key]);
      client.close();
    });

    it("logs refusals without keys", () => {
      const lines = server.log.lines.filter(({ fields }) => fields.code === "invalid_api_key");
      assert.ok(lines.length > 0);
      const log = JSON.stringify(server.log.lines);
      for (const secret of [key, wrongKey, "first-key"]) assert.ok(!log.includes(secret));
    });
  });
}

describe("an MCP server with API keys", async () => {
  const server = await startMcp("node", {}, undefined, new ApiKeys([key]));
  after(() => server.stop());

  it("takes requests with a key, and refuses others as JSON-RPC errors", async () => {
    const send = (given: object, headers: Readonly<Record<string, string>> = {}) => {
      const init = { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers };
      return fetch(server.url, { method: "POST", headers: init, body: JSON.stringify(given) });
    };
    const refused = await send(initialize);
    assert.equal(refused.status, 401);
    assert.equal(refused.headers.get("www-authenticate"), "Bearer");
    assert.equal(((await refused.json()) as { jsonrpc: string }).jsonrpc, "2.0");
    const headers = { authorization: `Bearer ${key}`, accept: "application/json, text/event-stream" };
    const begun = await post(server, initialize, headers);
    assert.equal(begun.status, 200);
    const session = { ...headers, "mcp-session-id": begun.headers.get("mcp-session-id")! };
    const call = { name: "chat", arguments: { messages } };
    const called = await post(server, { jsonrpc: "2.0", id: 2, method: "tools/call", params: call }, session);
    assert.match(called.body, /Hello world/);
    const { authorization, ...withoutKey } = session;
    assert.ok(authorization);
    assert.equal((await send(call, withoutKey)).status, 401);
    assert.equal((await fetch(server.url, { method: "OPTIONS" })).status, 204);
    const metadata = await fetch(new URL("/.well-known/oauth-protected-resource/mcp", server.url));
    assert.deepEqual([metadata.status, metadata.headers.get("www-authenticate")], [404, null]);
  });
});
