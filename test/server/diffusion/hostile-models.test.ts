// Damaged diffusion models: 500 mutated configurations and ONNX files. Each model either works or is rejected with a specific
// error. The process that loads a model may exit, but never hangs.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import type { DiffusionPlaceInit, ModelPlaceReady } from "../../../actors/messages.ts";
import { diffusionModule } from "../../../actors/placement.ts";
import { Random } from "../../../engines/decoding/sampler/random.ts";
import { openDiffusion } from "../../../engines/diffusion/pipeline.ts";
import { toErrorRecord } from "../../../runtime/errors.ts";
import { spawnPlace } from "../../../runtime/thread/place.ts";
import { ddimConfig, writeTinyPipeline } from "../../fixtures/diffusion/tiny-pipelines.ts";
import { Dice } from "../../fixtures/hostile/dice.ts";
import { mutatedJson } from "../../fixtures/mutants/model-formats.ts";

const root = mkdtempSync(join(tmpdir(), "troupe-hostile-diffusion-"));
after(() => rmSync(root, { recursive: true }));
const limits = { maxPixels: 64 * 64, maxSteps: 2 };
const expectedCodes = ["model_file_invalid", "unsupported", "model_failed", "invalid_value"];

const jsons = [
  "model_index.json",
  "scheduler/scheduler_config.json",
  "unet/config.json",
  "vae_decoder/config.json",
  "tokenizer/vocab.json",
  "tokenizer/tokenizer_config.json",
];
const graphs = ["text_encoder/model.onnx", "unet/model.onnx", "vae_decoder/model.onnx"];

/** Changes some bytes, mostly near the beginning or the end, or truncates the file. */
function mutatedBytes(bytes: Buffer, random: Random): Buffer {
  if (random.next() < 0.15) return bytes.subarray(0, Math.floor(random.next() * bytes.length));
  const changed = Buffer.from(bytes);
  const count = 1 + Math.floor(random.next() * 6);
  for (let i = 0; i < count; i++) {
    const reach = random.next() < 0.7 ? Math.min(600, bytes.length) : bytes.length;
    const from = random.next() < 0.5 ? 0 : bytes.length - reach;
    changed[from + Math.floor(random.next() * reach)] = Math.floor(random.next() * 256);
  }
  return changed;
}

describe("damaged diffusion models", () => {
  it("440 damaged configurations and vocabularies are rejected with a specific error, or work", async () => {
    const folder = writeTinyPipeline(join(root, "json"), { kind: "sd", config: ddimConfig });
    const originals = new Map(jsons.map((name) => [name, readFileSync(join(folder, name), "utf8")]));
    const random = new Random(24n);
    const dice = new Dice(() => random.next());
    let refused = 0;
    for (let i = 0; i < 440; i++) {
      const name = jsons[i % jsons.length] ?? "";
      writeFileSync(join(folder, name), mutatedJson(originals.get(name) ?? "", dice));
      try {
        const model = await openDiffusion({ path: folder, threads: 1, limits });
        const asked = {
          width: 64,
          height: 64,
          steps: 1,
          guidance: null,
          scheduler: null,
          seed: 1,
          truncatesPrompt: true,
        };
        const image = await model.begin({ prompt: "a red cat", negativePrompt: null, ...asked });
        await image.advance();
        await image.pixels();
        await model.dispose();
      } catch (error) {
        const { code, message } = toErrorRecord(error);
        assert.ok(expectedCodes.includes(code), `mutant ${i} of ${name}: ${code}: ${message}`);
        refused++;
      } finally {
        writeFileSync(join(folder, name), originals.get(name) ?? "");
      }
    }
    assert.ok(refused > 100, `${refused} were refused`);
  });

  it("60 damaged ONNX files crash at most the process that loads them", async () => {
    const folder = writeTinyPipeline(join(root, "onnx"), { kind: "sd", config: ddimConfig });
    const originals = new Map(graphs.map((name) => [name, readFileSync(join(folder, name))]));
    const random = new Random(25n);
    const codes = new Map<string, number>();
    const lanes = Array.from({ length: 2 }, async (_, lane) => {
      const own = join(root, `lane-${lane}`);
      cpSync(folder, own, { recursive: true });
      for (let i = 0; i < 30; i++) {
        const name = graphs[i % graphs.length] ?? "";
        const original = originals.get(name) as Buffer;
        writeFileSync(join(own, name), mutatedBytes(original, random));
        const code = await load(own);
        codes.set(code, (codes.get(code) ?? 0) + 1);
        writeFileSync(join(own, name), original);
      }
    });
    await Promise.all(lanes);
    const known = [...expectedCodes, "peer_gone", "loaded"];
    assert.deepEqual(
      [...codes.keys()].filter((code) => !known.includes(code)),
      [],
    );
    assert.ok((codes.get("model_file_invalid") ?? 0) > 12, JSON.stringify([...codes]));
  });
});

/** Loads a model in a separate process. Returns the error code, or "loaded". */
async function load(path: string): Promise<string> {
  try {
    const place = await spawnPlace<DiffusionPlaceInit, ModelPlaceReady>({
      name: "model:damaged",
      module: diffusionModule,
      init: { spec: { path, threads: 1, limits }, limits: { timeoutMs: 1000, maxQueue: 1 }, mailboxLimit: 16 },
      kind: "process",
      startTimeoutMs: 60_000,
      onOutput: () => {},
    });
    await place.stop(10_000);
    return "loaded";
  } catch (error) {
    return toErrorRecord(error).code;
  }
}
