// Reranking with the real command: scores of documents, and rejected requests.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { writeTinyReranker } from "../fixtures/models/tiny-reranker.ts";
import { type RunningServer, startServer } from "../fixtures/serve.ts";

interface Result {
  readonly index: number;
  readonly relevance_score: number;
}

describe("a reranker", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-reranker-"));
  let server: RunningServer;
  before(async () => {
    const path = join(folder, "reranker.gguf");
    await writeTinyReranker(path, 5);
    server = await startServer(["-m", path, "--threads", "1"]);
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  async function post(path: string, body: object) {
    const headers = { "content-type": "application/json" };
    const reply = await fetch(`${server.url}${path}`, { method: "POST", headers, body: JSON.stringify(body) });
    return (await reply.json()) as { results: Result[]; error: { code: string; message: string; param: string } };
  }

  const documents = ["the sea", "a lighthouse on the moon", "bread", "water and bread"];
  const scores = async (texts: readonly string[], query = "what is wet?") => {
    const { results } = await post("/v1/rerank", { query, documents: texts });
    const byIndex = texts.map((_, i) => results.find(({ index }) => index === i)?.relevance_score ?? Number.NaN);
    const order = results.map(({ relevance_score }) => relevance_score);
    assert.deepEqual(
      order,
      [...order].sort((one, other) => other - one),
    );
    return byIndex;
  };

  it("gives each document the same score as in a separate request, from 0 to 1", async () => {
    const together = await scores(documents);
    assert.equal(new Set(together).size, documents.length);
    for (const [i, score] of together.entries()) {
      assert.ok(score > 0 && score < 1);
      const [alone = Number.NaN] = await scores([documents[i] as string]);
      assert.ok(Math.abs(alone - score) < 1e-3, `${alone} ${score}`);
    }
  });

  it("takes the query into account", async () => {
    assert.notDeepEqual(await scores(documents), await scores(documents, "what is dry?"));
  });

  it("rejects a document that is too long, and other uses, with a specific error", async () => {
    const long = await post("/v1/rerank", { query: "q", documents: ["x y ".repeat(5000)] });
    assert.deepEqual([long.error.code, long.error.param], ["context_length_exceeded", "documents"]);
    const vectors = await post("/v1/embeddings", { input: "hi" });
    assert.match(vectors.error.message, /a score is no embedding/);
  });
});
