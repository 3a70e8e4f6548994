// Encoder model with the real command: embeddings on both engines, the speed trial of `engine = "auto"`, and
// rejected requests.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import OpenAI from "openai";
import { writeTinyEncoder } from "../fixtures/models/tiny-encoder.ts";
import { type RunningServer, startServer } from "../fixtures/serve.ts";

const inputs = ["the lighthouse keeper", "bread and water", "a cat is on the moon", "the sea, the sea!"];

describe("an encoder", () => {
  let folder = "";
  let path = "";
  let server: RunningServer;
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "troupe-encoder-"));
    path = join(folder, "encoder.gguf");
    await writeTinyEncoder(path, { seed: 1, pooling: "cls" });
    server = await startServer(["-m", path, "--threads", "1"]);
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const clientOf = ({ url }: RunningServer) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });
  const embed = async (of: RunningServer) => {
    const { data } = await clientOf(of).embeddings.create({
      model: "default",
      input: inputs,
      encoding_format: "float",
    });
    return data.map(({ embedding }) => embedding);
  };

  it("returns the same embeddings on the engine that a trial chose as on the others", async () => {
    const chosen = await startServer(["-m", path, "--threads", "1", "--engine", "auto"], { XDG_CACHE_HOME: folder });
    const [actual, expected] = [await embed(chosen), await embed(server)];
    await chosen.stop();
    assert.match(chosen.output(), /embeddings +http:[\s\S]*curl http.*\/v1\/embeddings/, "how to use it");
    assert.doesNotMatch(chosen.output(), /chat\/completions/, "an encoder answers no chats");
    assert.match(chosen.output(), /quicker in a trial .*wasm prompt \d+, weights [\d.]+ MiB; llama prompt \d+/);
    assert.equal(actual.length, expected.length);
    for (const [i, vector] of actual.entries()) {
      const cosine = vector.reduce((sum, value, k) => sum + value * (expected[i]?.[k] ?? 0), 0);
      assert.ok(cosine > 0.999, `${inputs[i]}: ${cosine}`);
    }
  });

  it("returns the same embeddings on the wasm engine as on the llama engine", async () => {
    const other = await startServer(["-m", path, "--threads", "1", "--engine", "llama"]);
    try {
      const [actual, expected] = [await embed(server), await embed(other)];
      for (const [i, vector] of actual.entries()) {
        const cosine = vector.reduce((sum, value, k) => sum + value * (expected[i]?.[k] ?? 0), 0);
        assert.ok(cosine > 0.999, `${inputs[i]}: ${cosine}`);
      }
    } finally {
      await other.stop();
    }
  });

  it("puts the prompt of the input type before a text, and refuses a type that the model does not have", async () => {
    const of = async (running: RunningServer, input: string, input_type?: string) => {
      const body = { model: "default", encoding_format: "float" as const, input, ...(input_type && { input_type }) };
      return (await clientOf(running).embeddings.create(body)).data[0]?.embedding;
    };
    await assert.rejects(of(server, "cat", "clustering"), /400 .*names no prompts/);
    assert.deepEqual(await of(server, "cat", "query"), await of(server, "cat"));
    const prompts = JSON.stringify({ query: "the sea: ", document: "" });
    const prompting = await startServer(["-m", path, "--threads", "1", "--prompts", prompts]);
    try {
      const plain = await of(server, "the sea: cat");
      assert.deepEqual(await of(prompting, "cat", "search_query"), plain);
      assert.deepEqual(await of(prompting, "the sea: cat", "document"), plain);
      assert.notDeepEqual(await of(prompting, "cat"), plain);
      await assert.rejects(of(prompting, "cat", "clustering"), /400 .*"query", "document"; got "clustering"/);
    } finally {
      await prompting.stop();
    }
  });

  it("returns a vector for each token if configured, and ranks by them", async () => {
    const tokens = await startServer(["-m", path, "--threads", "1", "--pooling", "tokens"]);
    try {
      const body = { model: "default", encoding_format: "float" as const, input: ["the cat", "moon"] };
      const { data } = await clientOf(tokens).embeddings.create(body);
      const vectors = data.map(({ embedding }) => embedding as unknown as number[][]);
      // Prompt tokens: [CLS], the words, [SEP].
      assert.deepEqual(
        vectors.map((found) => found.map((vector) => vector.length)),
        [Array(4).fill(64), Array(3).fill(64)],
      );
      for (const vector of vectors.flat()) assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-5);
      const cls = (await embed(server))[2];
      const { data: found } = await clientOf(tokens).embeddings.create({ ...body, input: inputs[2] as string });
      const [[own = []] = []] = found.map(({ embedding }) => embedding as unknown as number[][]);
      assert.ok(
        own.every((value, i) => Math.abs(value - (cls?.[i] ?? Number.NaN)) < 1e-4),
        "the first is the vector of cls",
      );
      const headers = { "content-type": "application/json" };
      const query = JSON.stringify({ query: "the cat", documents: ["bread", "the cat"] });
      const reply = await fetch(`${tokens.url}/v1/rerank`, { method: "POST", headers, body: query });
      const { results } = (await reply.json()) as { results: { index: number; relevance_score: number }[] };
      assert.equal(results[0]?.index, 1);
      assert.ok(Math.abs((results[0]?.relevance_score ?? 0) - 4) < 1e-3, "each vector of the query is in the document");
    } finally {
      await tokens.stop();
    }
  });

  it("rejects an input that is too long, naming both lengths, and requests to generate text", async () => {
    const client = clientOf(server);
    const input = "the sea ".repeat(100);
    await assert.rejects(
      client.embeddings.create({ model: "default", input }),
      /length is 128 tokens.*requested 20\d tokens/,
    );
    const messages = [{ role: "user" as const, content: "Hello" }];
    await assert.rejects(client.chat.completions.create({ model: "default", messages }), /400 .*\/v1\/embeddings/);
  });
});
