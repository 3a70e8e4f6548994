import assert from "node:assert/strict";
import { join } from "node:path";
import { before, describe, it, type TestContext } from "node:test";
import { prepareAdapter } from "../../../../engines/files/lora/prepare.ts";
import { WasmAdapters } from "../../../../engines/wasm/adapters/host.ts";
import { readModel } from "../../../../engines/wasm/load/fit.ts";
import type { KernelMemory } from "../../../../engines/wasm/load/kernel-module.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { writePeftAdapter } from "../../../fixtures/lora/lora.ts";
import { optionsFor, temporaryFolder } from "../../../fixtures/lora/lora-prepared.ts";
import { tinyModel } from "../../../fixtures/models/models.ts";

const folder = temporaryFolder();
let modelPath = "";
let adapter = "";
before(async () => {
  modelPath = await tinyModel();
  const source = join(folder, "adapter");
  await writePeftAdapter(source, { modelPath, seed: 1, rank: 4 });
  adapter = (await prepareAdapter({ ...optionsFor(modelPath, folder), source })).path;
});

/** Returns the adapters of a thread whose memory of `byteLength` bytes cannot grow. */
async function adaptersBehind(test: TestContext, byteLength: number): Promise<WasmAdapters> {
  const { table, graph, shape } = await readModel(modelPath);
  const sizes = { threads: 1, passTokens: 32, maxRows: 1, maxOutputs: 1, blockTokens: 32, kvType: 0 };
  const pages = { pagesPerThread: 1, blocksPerSequence: 1 };
  const plan = { files: table.files, graph, shape, ...sizes, ...pages, inputFloats: 0, adapterRank: 8, mixture: null };
  const memory = {
    buffer: { byteLength },
    grow: () => {
      throw new RangeError("no more");
    },
  } as unknown as KernelMemory;
  const adapters = new WasmAdapters(plan, [memory], 2 ** 30);
  test.after(() => adapters.dispose());
  return adapters;
}

describe("an adapter that does not fit a thread's memory", () => {
  it("may be retried if the system is out of memory, but not beyond the address space", async (test) => {
    for (const [length, code, retryable] of [
      [65_536, "lora_device_load_failed", true],
      [2 ** 32, "lora_slot_space_exhausted", false],
    ] as const) {
      const adapters = await adaptersBehind(test, length);
      await assert.rejects(adapters.load(1, adapter), (error) => {
        assert.ok(error instanceof ServerError, String(error));
        assert.deepEqual([error.code, error.retryable], [code, retryable], error.message);
        return true;
      });
      adapters.checkIntegrity();
      assert.equal(adapters.usedBytes, 0);
    }
  });
});
