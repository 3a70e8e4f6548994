// An encoder with the real command: embeddings on both engines, the speed trial of `engine = "auto"`, and rejected
// requests.
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

  it("says of texts on the engine that a trial chose what it says on the others", async () => {
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

  it("says of texts on the wasm engine what it says on the llama engine", async () => {
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

  it("refuses an input it cannot see whole, naming both numbers, and to generate", async () => {
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
