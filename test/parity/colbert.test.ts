// ColBERT models from safetensors with the real command: token vectors and MaxSim scores equal those of PyLate, for the folder
// layouts of ColBERT and of PyLate.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import OpenAI from "openai";
import { type ColbertLayout, colbertCase, writeColbert } from "../fixtures/checkpoints/colbert/colbert-model.ts";
import { type RunningServer, startServer } from "../fixtures/serve.ts";

/** Maximum error as a fraction of the range of the outputs. */
const largestError = 0.005;

type Vectors = readonly (readonly number[])[];

/** Response entry with a vector for each token, which OpenAI's API does not define. */
interface TokenEmbedding {
  readonly embedding: Vectors;
  readonly shape: readonly [number, number];
}

function errorShare(actual: readonly number[], expected: readonly number[]): number {
  assert.equal(actual.length, expected.length);
  const range = Math.max(...expected) - Math.min(...expected);
  return Math.max(...actual.map((value, i) => Math.abs(value - (expected[i] as number)))) / range;
}

for (const layout of ["stanford", "pylate", "modern"] satisfies ColbertLayout[]) {
  describe(`a ColBERT model in the layout of ${layout}`, () => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-colbert-"));
    const { queries, documents, similarities, ...model } = colbertCase(layout);
    let server: RunningServer;
    before(async () => {
      await writeColbert(join(folder, "model"), { queries, documents, similarities, ...model });
      const flags = ["-m", join(folder, "model"), "--engine", "auto", "--threads", "2"];
      server = await startServer(flags, { XDG_CACHE_HOME: join(folder, "cache") });
    });
    after(async () => {
      await server?.stop();
      rmSync(folder, { recursive: true, force: true });
    });

    async function embed(fields: object) {
      const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 0 });
      const body = { model: "default", encoding_format: "float", ...fields };
      const { data } = await client.embeddings.create(body as unknown as OpenAI.EmbeddingCreateParams);
      return data as unknown as TokenEmbedding[];
    }

    it("gives the vectors of queries and documents within 0.5 % of their range", async () => {
      for (const [input_type, texts] of [
        ["query", queries],
        ["document", documents],
      ] as const) {
        const data = await embed({ input: texts.map(({ text }) => text), input_type });
        for (const [i, { vectors, text }] of texts.entries()) {
          const { embedding, shape } = data[i] as TokenEmbedding;
          assert.deepEqual(shape, [vectors.length, vectors[0]?.length], text);
          const error = errorShare(embedding.flat(), vectors.flat());
          assert.ok(error <= largestError, `${text}: ${error}`);
        }
      }
    });

    it("ranks documents by MaxSim", async () => {
      for (const [i, { text: query }] of queries.entries()) {
        const expected = similarities[i] as readonly number[];
        const headers = { "content-type": "application/json" };
        const body = JSON.stringify({ query, documents: documents.map(({ text }) => text) });
        const reply = await fetch(`${server.url}/v1/rerank`, { method: "POST", headers, body });
        const { results } = (await reply.json()) as { results: { index: number; relevance_score: number }[] };
        const scores = documents.map((_, index) => results.find((one) => one.index === index)?.relevance_score ?? NaN);
        const vectors = queries[i]?.vectors.length ?? 0;
        for (const [at, score] of scores.entries()) {
          assert.ok(Math.abs(score - (expected[at] as number)) <= largestError * vectors, `${scores} ${expected}`);
        }
        const best = expected.indexOf(Math.max(...expected));
        assert.equal(results[0]?.index, best);
      }
    });

    it("encodes documents by default, returns fewer elements on request, and rejects unknown types and other uses", async () => {
      const [{ embedding }] = (await embed({ input: "cat" })) as [TokenEmbedding];
      const [{ embedding: named }] = (await embed({ input: "cat", input_type: "passage" })) as [TokenEmbedding];
      assert.deepEqual(embedding, named);
      const [short] = (await embed({ input: "cat", dimensions: 8 })) as [TokenEmbedding];
      assert.deepEqual(short.shape, [embedding.length, 8]);
      for (const vector of short.embedding) assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-5);
      await assert.rejects(
        embed({ input: "cat", input_type: "clustering" }),
        /400 .*"query", "document"; got "clustering"/,
      );
      const headers = { "content-type": "application/json" };
      const body = JSON.stringify({ model: "default", input: "cat" });
      const reply = await fetch(`${server.url}/api/embed`, { method: "POST", headers, body });
      assert.equal(reply.status, 400);
      assert.match(await reply.text(), /a vector for each token, which only POST \/v1\/embeddings returns/);
    });
  });
}

describe("a ColBERT model on the llama engine", () => {
  it("is rejected with a specific error", async () => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-colbert-"));
    try {
      await writeColbert(join(folder, "model"), colbertCase("stanford"));
      const flags = ["-m", join(folder, "model"), "--engine", "llama"];
      const started = startServer(flags, { XDG_CACHE_HOME: join(folder, "cache") });
      await assert.rejects(started, /engine expects wasm, the only one with a vector for each token/);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
