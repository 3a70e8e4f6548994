// MiniLM from safetensors on both engines: the vectors equal those of sentence-transformers. The weights come from a Python
// package that names no licence (their authors' licence is Apache-2.0), so they are not committed.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import OpenAI from "openai";
import { halfValues } from "../../engines/files/lora/half-floats.ts";
import { startServer } from "../fixtures/serve.ts";
import { pythonEnvironment } from "../server/python/environment.ts";

const fixtures = fileURLToPath(new URL("../../../test/fixtures/checkpoints/minilm/", import.meta.url));
const leastCosine = 0.9999;

interface Case {
  readonly text: string;
  readonly vector: Float64Array;
}

/** Returns the texts with the unit vectors of sentence-transformers, which minilm/describe.py recorded. */
function readCases(): Case[] {
  const stored: { text: string; vector: string }[] = JSON.parse(readFileSync(join(fixtures, "vectors.json"), "utf8"));
  return stored.map(({ text, vector }) => {
    const bytes = Buffer.from(vector, "base64");
    const valueAt = (_: unknown, i: number) => halfValues()[bytes.readUInt16LE(2 * i)] as number;
    return { text, vector: Float64Array.from({ length: bytes.length / 2 }, valueAt) };
  });
}

describe("MiniLM from safetensors", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-minilm-"));
  const model = join(folder, "minilm");
  before(async () => {
    const python = await pythonEnvironment(join(fixtures, "requirements.txt"));
    const script = "import importlib.util as util; print(end=util.find_spec('all_minilm_l6_v2').origin)";
    const { stdout } = await promisify(execFile)(python, ["-c", script]);
    await promisify(execFile)(python, ["-m", "zipfile", "-e", join(dirname(stdout), "model.zip"), model]);
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  for (const engine of ["wasm", "llama"]) {
    it(`gives the vectors of sentence-transformers on the ${engine} engine`, async () => {
      const cases = readCases();
      const flags = ["-m", model, "--engine", engine, "--threads", "2"];
      const server = await startServer(flags, { XDG_CACHE_HOME: join(folder, "cache") });
      try {
        const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "any", maxRetries: 0 });
        const { data } = await client.embeddings.create({ model: "default", input: cases.map(({ text }) => text) });
        const cosines = data.map(({ embedding }, i) => {
          const { vector } = cases[i] as Case;
          const length = Math.hypot(...vector) * Math.hypot(...embedding);
          return embedding.reduce((sum, value, k) => sum + value * (vector[k] as number), 0) / length;
        });
        const wrong = cases.flatMap(({ text }, i) => (cosines[i]! >= leastCosine ? [] : [`${cosines[i]}: ${text}`]));
        assert.deepEqual(wrong, []);
        assert.equal(cosines.length, cases.length);
      } finally {
        await server.stop();
      }
    });
  }
});
