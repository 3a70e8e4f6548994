import assert from "node:assert/strict";
import { closeSync, copyFileSync, mkdtempSync, openSync, rmSync, truncateSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { readTensorTable, type TensorInfo } from "../../../engines/files/gguf/tensors.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { memoryRefusal, wasmRefusal } from "../../../engines/wasm/load/fit.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { totalMemory } from "../../../runtime/host/memory.ts";
import { specOf, tinyModel } from "../../fixtures/models/models.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-wasm-load-"));
after(() => rmSync(folder, { recursive: true }));
let copies = 0;

/** Returns a copy of the tiny model in which some bytes of one tensor are overwritten. */
async function damaged(name: string, bytes: Uint8Array, at: (tensor: TensorInfo) => number): Promise<string> {
  const path = join(folder, `${copies++}.gguf`);
  copyFileSync(await tinyModel(), path);
  const tensor = (await readTensorTable(path)).tensors.get(name);
  assert.ok(tensor, name);
  const file = openSync(path, "r+");
  writeSync(file, bytes, 0, bytes.length, tensor.offset + at(tensor));
  closeSync(file);
  return path;
}

async function refusal(path: string, threads = 2): Promise<ServerError> {
  try {
    (await wasmEngine.load(specOf(path, { threads }), () => undefined)).dispose();
  } catch (error) {
    return error as ServerError;
  }
  return assert.fail("it was loaded");
}

const nan = new Uint8Array(Float32Array.of(Number.NaN).buffer);
const infinity = new Uint8Array(Float32Array.of(Number.NEGATIVE_INFINITY).buffer);

describe("loading into the wasm engine", () => {
  it("names the tensor and the row of a NaN weight, on any thread", async () => {
    for (const [bytes, part] of [
      [nan, 0],
      [infinity, 0.99],
    ] as const) {
      const path = await damaged(
        "blk.1.ffn_down.weight",
        bytes,
        ({ bytes: size }) => Math.floor((size * part) / 4) * 4,
      );
      const { code, message } = await refusal(path);
      assert.equal(code, "model_file_invalid");
      assert.match(message, /NaN or an infinity in row \d+ of tensor "blk\.1\.ffn_down\.weight"/);
    }
  });

  it("names a norm that holds a NaN", async () => {
    const { code, message } = await refusal(await damaged("output_norm.weight", nan, () => 8));
    assert.equal(code, "model_file_invalid");
    assert.match(message, /"output_norm\.weight"/);
  });

  it("rejects a file that was truncated before or during reading", async () => {
    const path = join(folder, "cut.gguf");
    copyFileSync(await tinyModel(), path);
    const last = [...(await readTensorTable(path)).tensors.values()].sort((a, b) => a.offset - b.offset).at(-1);
    truncateSync(path, (last?.offset ?? 0) + 100);
    const { code, message } = await refusal(path);
    assert.equal(code, "model_file_invalid");
    assert.match(message, /incomplete copy|ends/);
  });

  it("rejects more weights and cache than the threads' memories hold, before loading", async () => {
    const spec = specOf(await tinyModel(), { threads: 2, kvBudget: { bytes: 9 * 2 ** 30 } });
    assert.match(
      (await wasmRefusal(spec)) ?? "",
      /2 compute threads hold 7\.5 GiB; raise threads or use --engine llama/,
    );
    assert.equal(await wasmRefusal({ ...spec, threads: 3 }), null);
  });

  it("rejects more weights and cache than the main memory holds, before loading", async () => {
    const path = await tinyModel();
    const bytes = totalMemory() + 2 ** 30;
    const reason = await wasmRefusal(specOf(path, { threads: 4096, kvBudget: { bytes } }));
    assert.match(reason ?? "", /main memory of this machine or container is \d+\.\d GiB; .*--engine llama/);
    const table = await readTensorTable(path);
    const tensors = new Map([...table.tensors].map(([name, tensor]) => [name, { ...tensor, bytes }]));
    assert.match(memoryRefusal({ ...table, tensors }, 4096) ?? "", /its weights .* take \d+\.\d GiB/);
    assert.equal(memoryRefusal(table, 4096), null);
  });
});
