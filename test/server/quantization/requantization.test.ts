// Requantization of a model in use: POST /re_isq many times during streams, on both engines. No stream may be cut, and memory
// may not grow.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, describe, it } from "node:test";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { ask, expectWhole, openStream, post } from "../../fixtures/streams.ts";
import { changed, temporaryCache } from "./changes.ts";

/** Number of concurrent streams, and number of requantizations. The long version uses 32 and 20. */
const streams = Number(process.env.REQUANTIZE_STREAMS ?? 4);
const changes = Number(process.env.REQUANTIZE_CHANGES ?? 4);
const tokens = Number(process.env.REQUANTIZE_TOKENS ?? 40);
/**
 * Maximum growth of the resident memory in bytes. It is less than one copy of the weights (80 to 138 MiB), by which each
 * requantization would increase the memory if the old model stayed loaded.
 */
const mostGrowth = 75 * 2 ** 20;
/**
 * Environment that limits the server's heap. Each requantization leaves about 4 MiB of garbage. Without a limit, V8 collects it only
 * after about forty requantizations, which looks like a leak: the server's memory grows from 301 to 471 MiB, then falls to 364. With
 * the limit, the memory stays between 308 and 358 MiB from the second requantization on.
 */
const limitedHeap = { NODE_OPTIONS: "--max-old-space-size=128" };

const cache = temporaryCache();
after(cache.remove);

/** Returns the resident memory in bytes of the server and of the newest engine process, if the engine has its own process. */
function residentBytes({ process: { pid }, enginePids }: RunningServer): number {
  const pids = new Set([pid, enginePids().at(-1)]);
  return [...pids].reduce<number>((sum, one) => {
    const [, kib = "0"] = /^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${one}/status`, "utf8")) ?? [];
    return sum + Number(kib) * 1024;
  }, 0);
}

function leastOf(bytes: readonly number[]): number {
  return Math.min(...bytes);
}

function medianOf(bytes: readonly number[]): number {
  return [...bytes].sort((a, b) => a - b)[bytes.length >> 1] as number;
}

/** Opens one stream after another until `isOver`, and asserts that each is complete. Returns the number of streams. */
async function streamUntil(url: string, isOver: () => boolean): Promise<number> {
  let count = 0;
  while (!isOver()) {
    await expectWhole(await openStream(url, "default", tokens), tokens);
    count++;
  }
  return count;
}

for (const engine of ["wasm", "llama"] as const) {
  describe(`requantization on the ${engine} engine`, () => {
    it("cuts no stream, and memory stays the same", async () => {
      const { path } = await realModel();
      const flags = ["--engine", engine, "-m", path, "--max-model-len", "512", "--max-seqs", "8"];
      const server = await startServer(flags, { ...cache.environment, ...limitedHeap });
      try {
        let isOver = false;
        const clients = Array.from({ length: streams }, () => streamUntil(server.url, () => isOver));
        const resident: number[] = [];
        for (let i = 0; i < changes; i++) {
          const level = i % 2 === 0 ? "Q8_0" : "Q4_0";
          const response = await post(`${server.url}/re_isq`, { ggml_type: level });
          assert.deepEqual([response.status, await response.text()], [200, `Re ISQ: "${level}"`]);
          const { quantization, requantization } = await changed(server.url);
          assert.deepEqual([requantization?.status, quantization], ["done", level], requantization?.error);
          resident.push(residentBytes(server));
        }
        isOver = true;
        const counts = await Promise.all(clients);
        assert.ok(counts.reduce((sum, count) => sum + count, 0) >= streams);
        // One of the first values can be low, if the allocator has just given memory back.
        const growth = leastOf(resident.slice(changes / 2)) - medianOf(resident.slice(0, changes / 2));
        console.log(`${engine}: ${counts.reduce((sum, count) => sum + count, 0)} streams, ${changes} changes;`);
        console.log(`resident MiB after each: ${resident.map((bytes) => Math.round(bytes / 2 ** 20)).join(" ")}`);
        assert.ok(growth < mostGrowth, `the memory grew by ${growth} bytes: ${resident.join(", ")}`);
      } finally {
        await server.stop();
      }
    });
  });
}

describe("a change of the quantization", () => {
  it("is refused for an unknown level, an unknown model, and while another one runs", async () => {
    const { path } = await realModel();
    const server = await startServer(["-m", path, "--max-model-len", "256", "--max-seqs", "2"], cache.environment);
    try {
      const change = async (body: object) => {
        const response = await post(`${server.url}/re_isq`, body);
        return {
          status: response.status,
          body: (await response.json()) as { error: { code: string; message: string } },
        };
      };
      const unknown = await change({ ggml_type: "Q9_Z" });
      assert.deepEqual([unknown.status, unknown.body.error.code], [400, "invalid_value"]);
      assert.match(unknown.body.error.message, /ggml_type expects .*got "Q9_Z"/);
      const nobody = await change({ ggml_type: "Q4_0", model: "nobody" });
      assert.deepEqual([nobody.status, nobody.body.error.code], [404, "model_not_found"]);
      assert.equal((await post(`${server.url}/re_isq`, { ggml_type: "Q5_0" })).status, 200);
      const second = await change({ ggml_type: "Q4_0" });
      assert.deepEqual([second.status, second.body.error.code], [409, "model_state_conflict"]);
      const { requantization } = await changed(server.url);
      assert.deepEqual(requantization, { ggml_type: "Q5_0", status: "done", progress: 1 });
      assert.equal(await ask(server.url, "default"), 200);
    } finally {
      await server.stop();
    }
  });
});
