// Continued assistant message: in all chat protocols, an assistant message at the end of the conversation is continued by the
// output.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog() });

async function prompted(path: string, body: object) {
  const reply = await request(app, "POST", path, { body: { max_tokens: 5, ...body } });
  assert.equal(reply.status, 200, reply.body);
  const { prompt } = inference.lastRun.request;
  assert.ok(prompt.kind === "chat");
  return { continues: prompt.continuesLast === true, count: prompt.messages.length, last: prompt.messages.at(-1) };
}

async function refusal(path: string, body: object): Promise<string> {
  const reply = await request(app, "POST", path, { body });
  assert.ok(reply.status >= 400 && reply.status < 500);
  return JSON.parse(reply.body).error.message;
}

const user = { role: "user", content: "Hi" };
const begun = { role: "assistant", content: "The " };

describe("an assistant message at the end", () => {
  it("is continued in chat, messages and responses", async () => {
    for (const [path, body] of Object.entries({
      "/v1/chat/completions": { messages: [user, begun] },
      "/v1/messages": { messages: [user, begun] },
      "/v1/responses": { input: [user, begun] },
    })) {
      const { continues, count, last } = await prompted(path, body);
      assert.deepEqual([continues, count, last?.content], [true, 2, "The "], path);
    }
  });

  it("is not continued if it is empty: the model writes the whole message", async () => {
    const messages = [user, { role: "assistant", content: "" }];
    for (const path of ["/v1/chat/completions", "/v1/messages", "/v1/responses"]) {
      const { continues, count } = await prompted(path, path === "/v1/responses" ? { input: messages } : { messages });
      assert.deepEqual([continues, count], [false, 1], path);
    }
    // With previous_response_id, the output of the first turn follows the empty message.
    const later = [...messages, { role: "assistant", content: "Hello." }, user];
    assert.equal((await prompted("/v1/responses", { input: later })).count, 3);
  });

  it("is followed by a new message in chat if the client asks for that", async () => {
    for (const more of [{ continue_final_message: false }, { add_generation_prompt: true }]) {
      const { continues, count } = await prompted("/v1/chat/completions", { messages: [user, begun], ...more });
      assert.deepEqual([continues, count], [false, 2]);
    }
    const asked = { continue_final_message: true, add_generation_prompt: false };
    assert.ok((await prompted("/v1/chat/completions", { messages: [user, begun], ...asked })).continues);
  });

  it("must be there if the client asks to continue it", async () => {
    const path = "/v1/chat/completions";
    assert.match(await refusal(path, { messages: [user], continue_final_message: true }), /"assistant" with text/);
    assert.match(await refusal(path, { messages: [user], add_generation_prompt: false }), /"assistant" with text/);
    const both = { continue_final_message: true, add_generation_prompt: true };
    assert.match(await refusal(path, { messages: [user, begun], ...both }), /contradicts/);
  });

  it("with calls cannot be continued", async () => {
    const call = { id: "c", type: "function", function: { name: "f", arguments: "{}" } };
    const calling = { role: "assistant", content: "I call", tool_calls: [call] };
    assert.equal((await prompted("/v1/chat/completions", { messages: [user, calling] })).continues, false);
    const use = { role: "assistant", content: [{ type: "tool_use", id: "c", name: "f", input: {} }] };
    assert.match(await refusal("/v1/messages", { messages: [user, use] }), /results of its calls/);
  });
});
