// Fuzz test of the wasm engine's file checks: opens thousands of damaged model files of every architecture. WASM_FUZZ_ROUNDS
// sets the number of files, WASM_FUZZ_SEED the seed.
import assert from "node:assert/strict";
import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { readModel, type WasmModelFile } from "../../../engines/wasm/load/fit.ts";
import { createMemory, instantiateKernels, loadKernels } from "../../../engines/wasm/load/kernel-module.ts";
import { divideGraph, type PartitionPlan } from "../../../engines/wasm/plan/partition-plan.ts";
import { layOut } from "../../../engines/wasm/threads/thread-memory.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { damage, type Random, takeApart, type WholeFile } from "../../fixtures/gguf/damaged-gguf.ts";
import { specOf } from "../../fixtures/models/models.ts";
import { tinyArchitectures, writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";
import { writeTinyEncoder } from "../../fixtures/models/tiny-encoder.ts";

const rounds = Number(process.env.WASM_FUZZ_ROUNDS ?? 5_000);
const seed = Number(process.env.WASM_FUZZ_SEED ?? 1);
/** Maximum CPU time of a round in ms. Wall-clock time would depend on how busy the machine is. */
const maxRoundMs = 150;
const maxGrowthBytes = 192 * 1024 * 1024;
/** One of every `loadedEach` readable files is also loaded. */
const loadedEach = 40;

const encoders = ["bert", "nomic-bert", "modern-bert"] as const;

function seededRandom(from: number): Random {
  let state = from >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Returns the partition plan of a small model with a short context. */
function planOf({ table, graph, shape }: WasmModelFile, threads: number): PartitionPlan {
  const sizes = {
    passTokens: 64,
    maxRows: 4,
    maxOutputs: 4,
    blockTokens: 32,
    pagesPerThread: 4,
    blocksPerSequence: 16,
  };
  return {
    files: table.files,
    graph,
    shape,
    threads,
    kvType: 30,
    inputFloats: 0,
    adapterRank: 0,
    mixture: null,
    ...sizes,
  };
}

describe("a damaged model file of any architecture", () => {
  let directory = "";
  let path = "";
  const files: WholeFile[] = [];
  before(async () => {
    directory = mkdtempSync(join(tmpdir(), "troupe-damaged-"));
    path = join(directory, "model.gguf");
    for (const name of tinyArchitectures) {
      await writeTinyArchitecture(path, name, { seed: 5, weights: "Q4_0" });
      files.push(takeApart(readFileSync(path)));
    }
    for (const architecture of encoders) {
      await writeTinyEncoder(path, { architecture, seed: 5, pooling: "mean" });
      files.push(takeApart(readFileSync(path)));
    }
  });
  after(() => rmSync(directory, { recursive: true, force: true }));

  /** Reads the file. Returns null if the reader rejects the file with a specific error; throws on any other failure. */
  async function read(file: WholeFile): Promise<WasmModelFile | null> {
    try {
      return await readModel(path);
    } catch (error) {
      assert.ok(error instanceof ServerError, String((error as Error).stack));
      assert.match(error.code, /^(model_file_invalid|unsupported|config_invalid)$/);
      const message = error.message.replaceAll(path, "the file");
      assert.ok(message.length < 600, message);
      const namesSomething =
        /(tensor|key|architecture) "|head|bytes|byte \d|GGUF|key\/value pairs|tensors/.test(message) ||
        file.tensors.some(({ name }) => message.includes(name.replace(/\.(weight|bias)$/, ""))) ||
        /["' ][a-z0-9_-]+(\.[a-z0-9_]+)+/.test(message);
      assert.ok(namesSomething, `names neither a key nor a tensor: ${message}`);
      return null;
    }
  }

  it(`is read or rejected, quickly and in little memory, ${rounds} times`, async () => {
    const kernels = instantiateKernels(await loadKernels(), createMemory(1));
    const random = seededRandom(seed);
    // The same file is overwritten in each round, because creating a file takes longer than the measured work.
    const descriptor = openSync(path, "r+");
    const peakBefore = process.resourceUsage().maxRSS;
    let readable = 0;
    for (let round = 0; round < rounds; round++) {
      const file = files[round % files.length]!;
      const { bytes, how } = damage(file, random);
      writeSync(descriptor, bytes, 0, bytes.length, 0);
      ftruncateSync(descriptor, bytes.length);
      const started = process.cpuUsage();
      try {
        const found = await read(file);
        if (found) {
          readable++;
          for (const threads of [1, 3]) {
            const plan = planOf(found, threads);
            const { wasmPages } = layOut(plan, divideGraph(plan), kernels, threads - 1);
            assert.ok(wasmPages > 0 && wasmPages < 1024, `${wasmPages} pages`);
          }
        }
        const { user, system } = process.cpuUsage(started);
        assert.ok((user + system) / 1000 < maxRoundMs, `took ${user + system} us`);
        if (found && readable % loadedEach === 0) {
          await loadOrRefuse(path);
        }
      } catch (error) {
        const { message } = error as Error;
        throw new Error(`round ${round} of seed ${seed}, ${file.architecture}, ${how}: ${message}`, { cause: error });
      }
    }
    closeSync(descriptor);
    assert.ok(readable > rounds / 20 && readable < rounds / 2, `${readable} of ${rounds} were read`);
    const growth = (process.resourceUsage().maxRSS - peakBefore) * 1024;
    assert.ok(growth < maxGrowthBytes, `${growth} bytes more at the peak`);
  });
});

/** Loads the file. Weights read as a different type may contain NaN, which only loading detects. */
async function loadOrRefuse(path: string): Promise<void> {
  try {
    (await wasmEngine.load(specOf(path, { threads: 1, maxModelLength: 64 }), () => {})).dispose();
  } catch (error) {
    const { code, message } = error as ServerError;
    assert.ok(
      code === "model_file_invalid" && /holds a NaN or an infinity in row \d+ of tensor/.test(message),
      message,
    );
  }
}
