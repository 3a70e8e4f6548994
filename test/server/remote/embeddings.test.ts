// Embeddings of an encoder that runs on another server.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { writeTinyEncoder } from "../../fixtures/models/tiny-encoder.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

describe("an encoder on another troupe", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-remote-"));
  let far: RunningServer;
  let near: RunningServer;
  before(async () => {
    const path = join(folder, "encoder.gguf");
    await writeTinyEncoder(path, { seed: 3, pooling: "mean" });
    far = await startServer(["-m", path, "--threads", "1"]);
    near = await startServer(["-m", path, "--kind", "embedding", "--url", far.url]);
  });
  after(async () => {
    await near?.stop();
    await far?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it("returns the vectors of the other troupe, in order", async () => {
    const body = JSON.stringify({ input: ["the sea", "a lighthouse", "bread and water", "x"] });
    const vectors = async ({ url }: RunningServer) => {
      const headers = { "content-type": "application/json" };
      const reply = await fetch(`${url}/v1/embeddings`, { method: "POST", headers, body });
      const { data, usage } = (await reply.json()) as { data: { embedding: number[] }[]; usage: object };
      return { data: data.map(({ embedding }) => embedding), usage };
    };
    const [here, there] = await Promise.all([vectors(near), vectors(far)]);
    assert.deepEqual(here.usage, there.usage);
    for (const [i, vector] of there.data.entries()) {
      const other = here.data[i] ?? [];
      assert.equal(other.length, vector.length);
      for (const [k, value] of vector.entries()) assert.ok(Math.abs(value - (other[k] ?? 9)) < 1e-5);
    }
  });
});
