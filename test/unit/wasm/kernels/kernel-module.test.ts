import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Worker } from "node:worker_threads";
import { createMemory, instantiateKernels } from "../../../../engines/wasm/load/kernel-module.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { loadWith } from "./kernel-fixtures.ts";

/** Address of the first byte that a test may use. The kernels use the memory before it. */
const firstByte = 65_536;

describe("loadKernels", () => {
  it("chooses the variant that the environment names", async () => {
    assert.equal((await loadWith("plain")).variant, "plain");
    assert.equal((await loadWith("relaxed")).variant, "relaxed");
    const narrow = await loadWith("relaxed-narrow");
    assert.deepEqual([narrow.variant, narrow.wideDot], ["relaxed", false]);
  });

  it("chooses relaxed SIMD by default", {
    skip: !process.env.CI && "only where the machine is known",
  }, async () => {
    assert.equal((await loadWith("")).variant, "relaxed");
  });

  it("rejects an unknown name, listing the variants", async () => {
    await assert.rejects(loadWith("fast"), (error) => {
      assert.ok(error instanceof ServerError);
      assert.equal(error.code, "config_invalid");
      assert.match(error.message, /relaxed, relaxed-narrow, plain.*"fast"/);
      return true;
    });
  });

  it("reports a wide dot only if it is right for the largest operands", async () => {
    const { module, wideDot } = await loadWith("");
    const memory = createMemory(2);
    const kernels = instantiateKernels({ module, variant: "relaxed", wideDot, plainBecause: undefined }, memory);
    new Int8Array(memory.buffer, firstByte, 32).fill(-128);
    new Uint8Array(memory.buffer, firstByte + 32, 32).fill(255);
    assert.equal(kernels.probeAddDot(firstByte, firstByte + 32, 32) === -128 * 255 * 32, wideDot);
  });
});

describe("instantiateKernels", () => {
  it("works in a worker with a module that was sent to it", async () => {
    const url = new URL("../../../../engines/wasm/load/kernel-module.js", import.meta.url).href;
    const code = `
      const { parentPort, workerData } = require("node:worker_threads");
      import(${JSON.stringify(url)}).then(({ createMemory, instantiateKernels }) => {
        const memory = createMemory(2);
        new Uint8Array(memory.buffer, ${firstByte}, 64).fill(3);
        parentPort.postMessage(instantiateKernels(workerData, memory).probeAddDot(${firstByte}, ${firstByte + 16}, 16));
      });`;
    const worker = new Worker(code, { eval: true, workerData: await loadWith("") });
    const answer = await new Promise((resolve, reject) => worker.once("message", resolve).once("error", reject));
    assert.equal(answer, 9 * 16);
    await worker.terminate();
  });
});

describe("the probes", () => {
  for (const variant of ["relaxed", "plain"]) {
    it(`of the ${variant} variant depend on their input`, async () => {
      const memory = createMemory(2);
      const kernels = instantiateKernels(await loadWith(variant), memory);
      assert.notEqual(kernels.probeDot(800), kernels.probeDot(1600));
      const words = new Int32Array(memory.buffer, firstByte, 256);
      const empty = kernels.probeReadAll(firstByte, 1024);
      for (const at of [0, 15, 63, 64, 128, 255]) {
        words.fill(0);
        words[at] = 5;
        assert.notEqual(kernels.probeReadAll(firstByte, 1024), empty, `word ${at} was not read`);
      }
    });
  }
});
