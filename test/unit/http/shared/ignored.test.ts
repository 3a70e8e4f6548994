import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { z } from "zod";
import { createApp } from "../../../../http/app.ts";
import { ignored } from "../../../../http/shared/fields/fields.ts";
import { ignoredFields, tellIgnored } from "../../../../http/shared/ignored.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

function setUp() {
  const log = recordingLog();
  const app = createApp({ inference: new FakeInference(), log, config: { accessLog: false } });
  const send = async (path: string, body: object) => {
    const reply = await request(app, "POST", path, { body });
    assert.equal(reply.status, 200, reply.body);
  };
  return { log, send };
}

const chat = "/v1/chat/completions";

describe("an ignored field", () => {
  it("is logged with the reason on first use", async () => {
    const { log, send } = setUp();
    await send(chat, { messages: "hi", store: true, stream_options: { include_obfuscation: false } });
    await send(chat, { messages: "hi", store: false });
    assert.deepEqual(
      log.lines.map(({ level, fields }) => [level, fields]),
      [
        ["warn", { field: "stream_options.include_obfuscation" }],
        ["warn", { field: "store" }],
      ],
    );
    assert.match(log.lines[1]!.message, /without effect.*Ignored: .*\/v1\/responses/);
  });

  it("is found in lists, in variants that have it", async () => {
    const { log, send } = setUp();
    const part = { type: "text", text: "a", prompt_cache_breakpoint: {} };
    const call = {
      id: "a",
      type: "function",
      function: { name: "f", arguments: "", parsed_arguments: null },
      index: 0,
    };
    await send(chat, {
      messages: [
        { role: "user", content: [{ type: "text", text: "a" }, part, part] },
        { role: "assistant", content: [part], refusal: null, tool_calls: [call], parsed: {} },
      ],
    });
    assert.deepEqual(
      log.lines.map(({ fields }) => fields.field),
      ["messages[].content[].prompt_cache_breakpoint", "messages[].tool_calls[].index", "messages[].parsed"],
    );
  });

  it("is logged once for all protocols with the same reason", async () => {
    const { log, send } = setUp();
    await send(chat, { messages: "hi", user: "me" });
    await send("/v1/completions", { prompt: "hi", user: "me" });
    await send("/v1/embeddings", { input: "hi", user: "me" });
    assert.equal(log.lines.length, 1);
  });

  it("is searched once in a schema that contains itself", () => {
    const tree = z.object({
      note: ignored(z.string(), "nobody reads it"),
      get children() {
        return z.array(tree).optional();
      },
    });
    const log = recordingLog();
    tellIgnored(ignoredFields(tree, { children: [{ note: "x" }] }), log);
    assert.deepEqual(log.lines, []);
    tellIgnored(ignoredFields(tree, { note: "x", children: [] }), log);
    assert.equal(log.lines.length, 1);
  });

  it("is not logged if absent or null", async () => {
    const { log, send } = setUp();
    await send(chat, { messages: "hi", store: null, metadata: null, stream_options: null, temperature: 0 });
    assert.deepEqual(log.lines, []);
  });

  it("is accepted only in the form of its protocol", async () => {
    const { send } = setUp();
    await send(chat, {
      messages: "hi",
      user: "me",
      metadata: { a: "b" },
      service_tier: "flex",
      store: true,
      safety_identifier: "x",
      verbosity: "low",
      prediction: { type: "content", content: "x" },
      prompt_cache_key: "x",
      prompt_cache_retention: "24h",
      prompt_cache_options: { mode: "implicit" },
    });
    await assert.rejects(send(chat, { messages: "hi", verbosity: "loud" }), /verbosity/);
    await assert.rejects(send(chat, { messages: "hi", store: "yes" }), /store/);
  });
});
