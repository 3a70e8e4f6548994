// Reranking, tokenization, and endpoints that this server does not support.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../http/app.ts";
import { tokensSchema } from "../../../http/chat/tokens/operation.ts";
import { tokenizeRequestSchema, tokenSource } from "../../../http/chat/tokens/request.ts";
import { rerankingSchema } from "../../../http/rerank/operation.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog() });
const post = async (path: string, body: object) => {
  const reply = await request(app, "POST", path, { body });
  return { status: reply.status, body: JSON.parse(reply.body) };
};

describe("POST /v1/rerank", () => {
  const documents = ["low", { text: "high" }, "middle"];

  it("returns the documents by relevance, with scores from 0 to 1", async () => {
    inference.embedder = async () => ({ vectors: [-2, 3, 0].map((score) => Float32Array.of(score)), promptTokens: 30 });
    for (const path of ["/v1/rerank", "/rerank"]) {
      const { status, body } = await post(path, { query: "q", documents });
      assert.equal(status, 200);
      rerankingSchema.parse(body);
      assert.deepEqual(
        body.results.map(({ index }: { index: number }) => index),
        [1, 2, 0],
      );
      assert.equal(body.results[1].relevance_score, 0.5);
      assert.ok(body.results[0].relevance_score > 0.95 && body.results[2].relevance_score < 0.12);
      assert.deepEqual([body.model, body.usage], ["tiny", { prompt_tokens: 30, total_tokens: 30 }]);
    }
    const { query, inputs } = inference.embedRequests.at(-1)!;
    assert.deepEqual([query, Buffer.from(inputs.values as Uint8Array).toString()], ["q", "lowhighmiddle"]);
  });

  it("returns at most top_n, with the documents if asked", async () => {
    const { body } = await post("/v1/rerank", { query: "q", documents, top_n: 2, return_documents: true });
    assert.deepEqual(
      body.results.map(({ document }: { document: object }) => document),
      [{ text: "high" }, { text: "middle" }],
    );
  });

  it("uses the probability of the first of several labels", async () => {
    inference.embedder = async () => ({ vectors: [Float32Array.of(0.25, 0.75)], promptTokens: 1 });
    const { body } = await post("/v1/rerank", { query: "q", documents: ["a"] });
    assert.equal(body.results[0].relevance_score, 0.25);
  });

  it("uses the similarities of a ColBERT model as they are", async () => {
    const vectors = [Float32Array.of(12.5), Float32Array.of(20.25)];
    inference.embedder = async () => ({ vectors, promptTokens: 1, isMaxSim: true });
    const { body } = await post("/v1/rerank", { query: "q", documents: ["a", "b"] });
    assert.deepEqual(
      body.results.map(({ relevance_score }: { relevance_score: number }) => relevance_score),
      [20.25, 12.5],
    );
  });

  it("refuses a request without documents or with other things", async () => {
    for (const [body, param] of [
      [{ query: "q", documents: [] }, "documents"],
      [{ query: "", documents: ["a"] }, "query"],
      [{ query: "q", documents: [7] }, "documents[0]"],
      [{ query: "q", documents: ["a"], top_n: 0 }, "top_n"],
    ] as const) {
      assert.equal((await post("/v1/rerank", body)).body.error.param, param);
    }
  });
});

describe("POST /tokenize and /detokenize", () => {
  it("answer in the form of llama-server", async () => {
    assert.deepEqual((await post("/tokenize", { content: "Hi" })).body, { tokens: [72, 105] });
    const { body } = await post("/tokenize", { content: "Hi", with_pieces: true });
    assert.deepEqual(body, {
      tokens: [
        { id: 72, piece: "H" },
        { id: 105, piece: "i" },
      ],
    });
    tokensSchema.parse(body);
    assert.equal((await post("/detokenize", { tokens: [72, 105] })).body.content, "Hi");
  });

  it("answer in the form of vLLM, for prompts and for messages", async () => {
    const { body } = await post("/tokenize", { model: "tiny", prompt: "Hi", return_token_strs: true });
    assert.deepEqual(body, { count: 2, max_model_len: 4096, tokens: [72, 105], token_strs: ["H", "i"] });
    const chat = await post("/tokenize", { messages: [{ role: "user", content: "Hi" }], add_generation_prompt: true });
    assert.deepEqual(chat.body, { count: 2, max_model_len: 4096, tokens: [72, 105], token_strs: null });
    tokensSchema.parse(chat.body);
    assert.equal((await post("/detokenize", { model: "tiny", tokens: [72, 105] })).body.prompt, "Hi");
  });

  it("refuse messages that have no tokens, and what contradicts the messages", async () => {
    const user = { role: "user", content: "Hi" };
    const image = { type: "image_url", image_url: "data:image/png;base64,aaaa" };
    for (const [body, param, message] of [
      [{ messages: [{ role: "user", content: [image] }] }, "messages", /input_tokens counts/],
      [{ messages: [user], continue_final_message: true }, "continue_final_message", /role "assistant" with text/],
      [
        { messages: [user, { role: "tool", tool_call_id: "x", content: "1" }] },
        "messages[1].tool_call_id",
        /id of a call/,
      ],
    ] as const) {
      const { status, body: reply } = await post("/tokenize", body);
      assert.deepEqual([status, reply.error.param], [400, param]);
      assert.match(reply.error.message, message);
    }
  });

  it("end with the last message if no message is to begin", () => {
    const messages = [
      { role: "user", content: "Hi" },
      { role: "assistant", content: "Hello." },
    ];
    const promptOf = (fields: object) => {
      const source = tokenSource(tokenizeRequestSchema.parse({ messages, ...fields }));
      return source.kind === "chat" ? source.prompt : assert.fail();
    };
    const complete = promptOf({ add_generation_prompt: false, continue_final_message: false });
    assert.deepEqual(complete, promptOf({ add_generation_prompt: false }));
    assert.deepEqual(complete.templateArguments.variables, { add_generation_prompt: false });
    assert.equal(complete.continuesLast ?? false, false);
    assert.equal(promptOf({ add_generation_prompt: false, continue_final_message: true }).continuesLast, true);
  });

  it("take exactly one source, also an empty text", async () => {
    assert.deepEqual((await post("/tokenize", { content: "" })).body, { tokens: [] });
    assert.match((await post("/tokenize", {})).body.error.message, /one of content, prompt and messages, got 0/);
    assert.match((await post("/tokenize", { content: "a", prompt: "b" })).body.error.message, /got 2/);
  });
});

describe("endpoints that the server does not have", () => {
  const paths = [
    "/v1/images/edits",
    "/v1/uploads",
    "/v1/batches",
    "/v1/fine_tuning/jobs",
    "/v1/moderations",
    "/v1/assistants",
    "/v1/threads/t/runs",
    "/v1/vector_stores",
    "/v1/realtime",
    "/v1/conversations",
    "/infill",
    "/props",
    "/slots",
  ];
  for (const path of paths) {
    it(`${path} is rejected as unsupported`, async () => {
      const reply = await request(app, path === "/props" ? "GET" : "POST", path, { body: {} });
      const { error } = JSON.parse(reply.body);
      assert.deepEqual([reply.status, error.code], [404, "unsupported"]);
      assert.match(error.message, /^\/\S+ is not supported: \w/);
    });
  }

  it("/v1/messages/batches is rejected with the error type of its protocol", async () => {
    const reply = await request(app, "POST", "/v1/messages/batches", { body: {} });
    const { type, error } = JSON.parse(reply.body);
    assert.deepEqual([reply.status, type, error.details.error_code], [404, "error", "unsupported"]);
  });

  it("have no separate path in the metrics, and other paths are still unknown", async () => {
    const { body } = await request(app, "GET", "/metrics");
    assert.ok(!body.includes("/v1/assistants"));
    assert.equal(JSON.parse((await request(app, "GET", "/v1/filesystem")).body).error.code, "not_found");
  });
});
