// Table of invalid request bodies that are sent over a real socket to each HTTP server implementation that loads here. Each
// row lists the expected status, the field that the error names, and words of its message.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { loadableEdges, startServer } from "../../fixtures/http-server.ts";

type Row = readonly [what: string, body: unknown, status: number, param: string | null, fragment: string];

const say = { messages: [{ role: "user", content: "hi" }] };
const message = (value: unknown) => ({ messages: [value] });
const user = (content: unknown) => message({ role: "user", content });

const chatRows: readonly Row[] = [
  ["a stop string with half a character", { ...say, stop: "\ude00" }, 400, "stop", "whole characters"],
  ["a stop list with half a character", { ...say, stop: ["a", "b\ud83d"] }, 400, "stop[1]", "whole characters"],
  ["more stop strings than a stop string is long", { ...say, stop: Array(1100).fill("a") }, 400, "stop", "at most 16"],
  ["a token id in two spellings", { ...say, logit_bias: { "1": 1, "01": 2 } }, 400, "logit_bias.01", "a token id"],
  [
    "very many sequence breakers",
    { ...say, dry_multiplier: 1, dry_sequence_breakers: Array.from({ length: 65 }, (_, i) => `${i}`) },
    400,
    "dry_sequence_breakers",
    "at most 64",
  ],
  [
    "a repetition penalty beyond reason",
    { ...say, repetition_penalty: 1e30 },
    400,
    "repetition_penalty",
    "at most 100",
  ],
  ["an empty body", "", 400, null, "empty body"],
  ["text that is not JSON", "hello", 400, null, "not JSON"],
  ["a body cut short", '{"messages": [', 400, null, "not JSON"],
  ["a trailing comma", '{"messages": "hi",}', 400, null, "not JSON"],
  ["single quotes", "{'messages': 'hi'}", 400, null, "not JSON"],
  ["NaN", '{"messages": "hi", "temperature": NaN}', 400, null, "not JSON"],
  ["bytes that are not UTF-8", Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]), 400, null, "not UTF-8"],
  ["an array", [], 400, null, "expected an object, got an empty array"],
  ["a string", '"hi"', 400, null, 'expected an object, got "hi"'],
  ["null", "null", 400, null, "expected an object, got null"],
  ["no messages", {}, 400, "messages", "got nothing"],
  ["messages null", { messages: null }, 400, "messages", "got null"],
  ["messages a number", { messages: 5 }, 400, "messages", "expected a string or an array of messages, got 5"],
  ["no message in messages", { messages: [] }, 400, "messages", "an array that is not empty"],
  ["an empty string of messages", { messages: "" }, 400, "messages", "a string that is not empty"],
  ["a message that is a string", message("hi"), 400, "messages[0]", 'got "hi"'],
  ["a message with no role", message({ content: "hi" }), 400, "messages[0].role", '"system", "developer", "user"'],
  ["an unknown role", message({ role: "robot", content: "hi" }), 400, "messages[0].role", '"robot"'],
  ["a role that is a number", message({ role: 1, content: "hi" }), 400, "messages[0].role", "got 1"],
  [
    "the result of no call",
    message({ role: "tool", content: "x", tool_call_id: "a" }),
    400,
    "messages[0].tool_call_id",
    "the id of a call",
  ],
  [
    "the result of a function",
    message({ role: "function", name: "f", content: "x" }),
    400,
    "messages[0].role",
    "tool_calls",
  ],
  ["the second message wrong", { messages: [say.messages[0], { role: "x" }] }, 400, "messages[1].role", '"x"'],
  ["a user without content", message({ role: "user" }), 400, "messages[0].content", "got nothing"],
  ["a user with content null", user(null), 400, "messages[0].content", "got null"],
  ["content a number", user(7), 400, "messages[0].content", "a string or an array of content parts, got 7"],
  ["content an object", user({ text: "hi" }), 400, "messages[0].content", "got an object"],
  ["a part that is a string", user(["hi"]), 400, "messages[0].content[0]", 'got "hi"'],
  ["a part of no known type", user([{ type: "poem" }]), 400, "messages[0].content[0].type", '"poem"'],
  ["a text part without text", user([{ type: "text" }]), 400, "messages[0].content[0].text", "a string, got nothing"],
  [
    "a text part with more",
    user([{ type: "text", text: "a", x: 1 }]),
    400,
    "messages[0].content[0].x",
    "no such field",
  ],
  [
    "an image",
    user([
      { type: "text", text: "a" },
      { type: "image_url", image_url: { url: "x" } },
    ]),
    400,
    "messages[0].content[1].image_url.url",
    "data URL",
  ],
  [
    "audio",
    user([{ type: "input_audio", input_audio: { data: "?", format: "wav" } }]),
    400,
    "messages[0].content[0].input_audio.data",
    "base64",
  ],
  ["a video", user([{ type: "video_url", video_url: "x" }]), 400, "messages[0].content[0].video_url", "data URL"],
  [
    "a file part",
    user([{ type: "file", file: { file_id: "x" } }]),
    400,
    "messages",
    "a file in a message cannot be used",
  ],
  ["a message with more", message({ role: "user", content: "x", mood: 1 }), 400, "messages[0].mood", "no such field"],
  [
    "a tool call of no type",
    message({ role: "assistant", content: "x", tool_calls: [{}] }),
    400,
    "messages[0].tool_calls[0].type",
    '"function"',
  ],
  [
    "two thoughts in a message",
    message({ role: "assistant", content: "x", reasoning: "a", reasoning_content: "b" }),
    400,
    "messages[0].reasoning",
    "contradicts reasoning_content",
  ],
  ["a misspelt field", { ...say, temprature: 1 }, 400, "temprature", 'did you mean "temperature"?'],
  ["an unknown field", { ...say, zzzzzzzzzz: 1 }, 400, "zzzzzzzzzz", "no such field"],
  ["__proto__", '{"messages":"hi","__proto__":{"stream":true}}', 400, "__proto__", "no such field"],
  ["model a number", { ...say, model: 3 }, 400, "model", "expected a string, got 3"],
  ["an unknown model", { ...say, model: "gpt-9" }, 404, "model", '"gpt-9" is not available'],
  ["stream a string", { ...say, stream: "yes" }, 400, "stream", 'expected true or false, got "yes"'],
  ["n zero", { ...say, n: 0 }, 400, "n", "at least 1, got 0"],
  ["n too large", { ...say, n: 65 }, 400, "n", "at most 64, got 65"],
  ["n a fraction", { ...say, n: 1.5 }, 400, "n", "an integer, got 1.5"],
  ["stop empty", { ...say, stop: "" }, 400, "stop", "not empty"],
  ["stop with an empty string", { ...say, stop: ["a", ""] }, 400, "stop[1]", "not empty"],
  ["too many stops", { ...say, stop: Array(17).fill("a") }, 400, "stop", "at most 16"],
  ["a stop too long", { ...say, stop: "a".repeat(1025) }, 400, "stop", "at most 1024 characters"],
  ["stop a number", { ...say, stop: 1 }, 400, "stop", "a string or an array"],
  ["max_tokens zero", { ...say, max_tokens: 0 }, 400, "max_tokens", "at least 1, got 0"],
  ["max_tokens negative", { ...say, max_tokens: -5 }, 400, "max_tokens", "got -5"],
  ["max_tokens a string", { ...say, max_tokens: "10" }, 400, "max_tokens", 'a number, got "10"'],
  ["max_completion_tokens zero", { ...say, max_completion_tokens: 0 }, 400, "max_completion_tokens", "at least 1"],
  [
    "two limits",
    { ...say, max_tokens: 1, max_completion_tokens: 2 },
    400,
    "max_completion_tokens",
    "contradicts max_tokens: 1",
  ],
  ["temperature too high", { ...say, temperature: 2.1 }, 400, "temperature", "at most 2, got 2.1"],
  ["temperature negative", { ...say, temperature: -1 }, 400, "temperature", "at least 0, got -1"],
  ["temperature infinite", '{"messages":"hi","temperature":1e999}', 400, "temperature", "a number, got Infinity"],
  ["top_p zero", { ...say, top_p: 0 }, 400, "top_p", "more than 0, got 0"],
  ["top_p above one", { ...say, top_p: 1.1 }, 400, "top_p", "at most 1"],
  ["top_k below -1", { ...say, top_k: -2 }, 400, "top_k", "at least -1"],
  ["min_p above one", { ...say, min_p: 2 }, 400, "min_p", "at most 1"],
  ["presence_penalty out of range", { ...say, presence_penalty: 3 }, 400, "presence_penalty", "at most 2"],
  ["frequency_penalty out of range", { ...say, frequency_penalty: -3 }, 400, "frequency_penalty", "at least -2"],
  ["repetition_penalty zero", { ...say, repetition_penalty: 0 }, 400, "repetition_penalty", "more than 0"],
  ["logit_bias an array", { ...say, logit_bias: [1] }, 400, "logit_bias", "an object, got an array"],
  ["logit_bias of a word", { ...say, logit_bias: { cat: 1 } }, 400, "logit_bias.cat", 'a token id, got "cat"'],
  [
    "logit_bias of too many tokens",
    { ...say, logit_bias: Object.fromEntries(Array.from({ length: 4097 }, (_, token) => [token, 1])) },
    400,
    "logit_bias",
    "at most 4096 tokens",
  ],
  ["logit_bias too strong", { ...say, logit_bias: { 5: 101 } }, 400, "logit_bias.5", "at most 100"],
  ["dry_base below one", { ...say, dry_base: 0.5 }, 400, "dry_base", "at least 1"],
  ["logprobs a number", { ...say, logprobs: 3 }, 400, "logprobs", "true or false, got 3"],
  ["top_logprobs too many", { ...say, logprobs: true, top_logprobs: 21 }, 400, "top_logprobs", "at most 20"],
  ["top_logprobs alone", { ...say, top_logprobs: 2 }, 400, "top_logprobs", "needs logprobs: true"],
  ["priority out of range", { ...say, priority: -1001 }, 400, "priority", "at least -1000"],
  ["a negative budget for thinking", { ...say, reasoning_budget: -1 }, 400, "reasoning_budget", "at least 0"],
  ["seed a fraction", { ...say, seed: 0.5 }, 400, "seed", "an integer"],
  ["seed too large", { ...say, seed: 1e30 }, 400, "seed", "at most 9007199254740991"],
  [
    "reasoning_effort unknown",
    { ...say, reasoning_effort: "huge" },
    400,
    "reasoning_effort",
    'one of "off", "none", "minimal", "low"',
  ],
  [
    "thinking and no effort",
    { ...say, enable_thinking: true, reasoning_effort: "none" },
    400,
    "reasoning_effort",
    "contradicts",
  ],
  [
    "template kwargs reserved",
    { ...say, chat_template_kwargs: { messages: [] } },
    400,
    "chat_template_kwargs.messages",
    "reserved",
  ],
  [
    "template kwargs contradicting",
    { ...say, enable_thinking: true, chat_template_kwargs: { enable_thinking: false } },
    400,
    "chat_template_kwargs.enable_thinking",
    "contradicts",
  ],
  [
    "a JSON schema left out",
    { ...say, response_format: { type: "json_schema", json_schema: { name: "x" } } },
    400,
    "response_format.json_schema.schema",
    "a JSON schema",
  ],
  ["a response format of no kind", { ...say, response_format: { type: "yaml" } }, 400, "response_format.type", "yaml"],
  ["a grammar of no kind", { ...say, grammar: { type: "bnf", value: "a" } }, 400, "grammar.type", "bnf"],
  [
    "a grammar beside a response format",
    { ...say, grammar: { type: "regex", value: "a" }, response_format: { type: "json_object" } },
    400,
    "grammar",
    "response_format",
  ],
  [
    "a grammar that never ends",
    { ...say, grammar: { type: "regex", value: "a" }, ignore_eos: true },
    400,
    "ignore_eos",
    "grammar",
  ],
  ["a tool without a function", { ...say, tools: [{ type: "function" }] }, 400, "tools[0].function", "an object"],
  ["a tool run here", { ...say, tools: [{ type: "code_interpreter" }] }, 400, "tools", "not enabled"],
  ["a choice without tools", { ...say, tool_choice: "required" }, 400, "tool_choice", "got none"],
  ["functions", { ...say, functions: [{ name: "f" }] }, 400, "functions", "send tools"],
  ["an answer in audio", { ...say, modalities: ["text", "audio"] }, 400, "modalities", "not supported"],
  ["web search", { ...say, web_search_options: {} }, 400, "web_search_options", "not enabled"],
  ["the shell", { ...say, enable_shell: true }, 400, "enable_shell", "not enabled"],
  ["tool rounds", { ...say, max_tool_rounds: 257 }, 400, "max_tool_rounds", "256"],
  ["a session", { ...say, session_id: "s" }, 400, "session_id", "cannot be used"],
  ["files", { ...say, files: [{ name: "a.png" }] }, 400, "files", "not enabled"],
  ["an adapter that is a number", { ...say, adapter: 5 }, 400, "adapter", "the name of an adapter"],
  ["a generation cut short", { ...say, adapter: { generation: "a1" } }, 400, "adapter.generation", "64 hex digits"],
  [
    "ask without stream",
    { ...say, agent_permission: "ask" },
    400,
    "agent_permission",
    "POST /v1/agent/approvals/{approval_id}",
  ],
  ["ask by its older name", { ...say, code_execution_permission: "ask" }, 400, "agent_permission", "stream=true"],
  [
    "a permission unknown",
    { ...say, agent_permission: "maybe" },
    400,
    "agent_permission",
    'one of "auto", "ask", "deny"',
  ],
  [
    "two permissions",
    { ...say, agent_permission: "auto", code_execution_permission: "deny" },
    400,
    "code_execution_permission",
    "contradicts",
  ],
  ["stream_options unknown", { ...say, stream_options: { x: 1 } }, 400, "stream_options.x", "no such field"],
  ["metadata a string", { ...say, metadata: "x" }, 400, "metadata", "an object"],
  ["more values than a body may have", `{"messages":[${"0,".repeat(250_000)}0]}`, 400, null, "at most 200000 values"],
];

const ask = { prompt: "Once" };
const completionRows: readonly Row[] = [
  ["no prompt", {}, 400, "prompt", "a string"],
  ["prompts of two kinds", { prompt: ["a", [1]] }, 400, "prompt", "some of each"],
  ["a prompt of too large a token", { prompt: [2 ** 32] }, 400, "prompt[0]", "at most 2147483647"],
  ["stream", { ...ask, stream: true }, 400, "stream", "do not stream"],
  ["a suffix beside tokens", { prompt: [1], suffix: "end" }, 400, "suffix", "as text"],
  ["best_of less than n", { ...ask, n: 3, best_of: 2 }, 400, "best_of", "expected at least n (3)"],
  ["a budget for thinking", { ...ask, reasoning_budget: 5 }, 400, "reasoning_budget", "no such field"],
  ["too many logprobs", { ...ask, logprobs: 6 }, 400, "logprobs", "at most 5"],
  ["messages", { ...ask, messages: [] }, 400, "messages", "no such field"],
  ["tools", { ...ask, tools: [1] }, 400, "tools", "no tool calls"],
  ["a negative max_tokens", { ...ask, max_tokens: -1 }, 400, "max_tokens", "at least 0"],
  ["an unknown model", { ...ask, model: "gpt-9" }, 404, "model", "gpt-9"],
];

const embeddingRows: readonly Row[] = [
  ["no input", {}, 400, "input", "expected a text"],
  ["an empty text", { input: "" }, 400, "input", "not empty"],
  ["texts and tokens", { input: ["a", 1] }, 400, "input", "some of each"],
  ["a negative token", { input: [[1], [-2]] }, 400, "input[1][0]", "at least 0"],
  ["too many inputs", { input: Array.from({ length: 2049 }, () => "a") }, 400, "input", "at most 2048"],
  ["no dimensions", { input: "a", dimensions: 0 }, 400, "dimensions", "at least 1"],
  ["an unknown format", { input: "a", encoding_format: "hex" }, 400, "encoding_format", '"float", "base64"'],
  ["an unknown model", { input: "a", model: "gpt-9" }, 404, "model", "gpt-9"],
];

const contentTypes = [undefined, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"];

const codes: Readonly<Record<number, readonly string[]>> = {
  400: ["invalid_json", "invalid_value", "unsupported"],
  404: ["model_not_found"],
  415: ["invalid_content_type"],
};

for (const edge of loadableEdges()) {
  describe(`an invalid body on the ${edge} edge`, async () => {
    const server = await startServer(edge, { config: { unknownFields: "refuse" } });
    after(() => server.stop());

    async function refused(path: string, body: unknown, status: number, contentType: string | undefined) {
      const isRaw = typeof body === "string" || body instanceof Uint8Array;
      const reply = await fetch(server.url + path, {
        method: "POST",
        // The body is sent as bytes, because fetch adds a content type to a string.
        body: new Uint8Array(Buffer.from(isRaw ? body : JSON.stringify(body))),
        headers: { connection: "close", ...(contentType === undefined ? {} : { "content-type": contentType }) },
      });
      const { error } = (await reply.json()) as { error: Record<string, string | null> };
      assert.equal(reply.status, status, error.message ?? "");
      assert.equal(error.type, "invalid_request_error");
      assert.ok(codes[status]!.includes(error.code!), error.code!);
      return error;
    }

    const rows = [
      ...chatRows.map((row) => ["/v1/chat/completions", ...row] as const),
      ...completionRows.map((row) => ["/v1/completions", ...row] as const),
      ...embeddingRows.map((row) => ["/v1/embeddings", ...row] as const),
    ];
    for (const [path, what, body, status, param, fragment] of rows) {
      it(`${path} with ${what} is ${status} naming ${param ?? "the body"}`, async () => {
        const error = await refused(path, body, status, "application/json");
        assert.equal(error.param, param);
        assert.ok(error.message!.includes(fragment), error.message!);
      });
    }

    for (const contentType of contentTypes) {
      it(`content-type ${contentType ?? "missing"} is 415`, async () => {
        const error = await refused("/v1/chat/completions", say, 415, contentType);
        assert.match(error.message!, /expected content-type application\/json/);
      });
    }

    it("starts no generation", () => assert.equal(server.inference.runs.length, 0));
  });
}
