// GPU layers: the forms of the setting `device_layers`, what is passed to llama.cpp, and machines and models that the setting
// does not fit.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import koffi from "koffi";
import { gpuShares, withDeviceLayers } from "../../../../cli/assembly/models/gpu-layers.ts";
import { llamaEngine } from "../../../../engines/llama/engine.ts";
import { withTensorSplit } from "../../../../engines/llama/native/tensor-split.ts";
import { createLogger } from "../../../../runtime/log/log.ts";
import { specOf } from "../../../fixtures/models/models.ts";
import { writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";
import { assertRefused, resolve } from "../config/resolve.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-layers-"));
const path = join(folder, "tiny.gguf");
const gpu = (name: string) => ({ name, totalBytes: 1, availableBytes: 1 });
const hostOf = (...names: string[]) => ({ devices: async () => names.map(gpu) });

function modelOf(layers: string | null, ...flags: string[]) {
  const given = {
    ...(layers === null ? {} : { "--device-layers": layers }),
    ...(flags.includes("--cpu") && ({ "--cpu": true } as const)),
  };
  const [model] = resolve({ flags: { "--model-id": [path], ...given } }).models;
  assert.ok(model);
  return model;
}

describe("device_layers", () => {
  before(() => writeTinyModel(path, { seed: 1, layers: 4 }));
  after(() => rmSync(folder, { recursive: true }));

  it("is a number of layers, or one for each GPU, as a text or as a list", () => {
    const forms = ["16", " 0:16 ; 1:8", "2:0"].map((text) => modelOf(text).device.deviceLayers);
    assert.deepEqual(forms, [
      [{ device: 0, layers: 16 }],
      [
        { device: 0, layers: 16 },
        { device: 1, layers: 8 },
      ],
      [{ device: 2, layers: 0 }],
    ]);
    const file = resolve({
      text: 'command = "serve"\n[[models]]\nmodel_id = "a"\n[models.device]\ndevice_layers = ["0:3", "1:4"]',
    });
    assert.deepEqual(
      file.models[0]?.device.deviceLayers?.map(({ layers }) => layers),
      [3, 4],
    );
    for (const wrong of ["", "x", "0:1;0:2", "1;2", "0:-1", "0:1:2", "200:1", "0:1,1:1"]) {
      assertRefused(
        { flags: { "--device-layers": wrong } },
        /^"?--device-layers"? expects a number of layers, or numbers by GPU/,
      );
    }
  });

  it("counts the output matrix as a layer of the last GPU, as llama.cpp does", () => {
    const shares = (text: string) => gpuShares(modelOf(text).device.deviceLayers ?? [], 32, 3, "m");
    assert.deepEqual(shares("10"), { gpuLayers: 11, gpuSplit: [11, 0, 0] });
    assert.deepEqual(shares("0:16;2:16"), { gpuLayers: 33, gpuSplit: [16, 0, 17] });
    assert.deepEqual(shares("1:8;0:4"), { gpuLayers: 13, gpuSplit: [4, 9, 0] });
    assert.deepEqual(shares("0:0"), { gpuLayers: 0, gpuSplit: null });
    assert.throws(() => shares("0:16;1:17"), /expects at most the 32 layers of "m"; got 33/);
  });

  it("divides layers in llama.cpp as specified", () => {
    // llama.cpp puts layer i of n on the first GPU whose cumulative share is above i / n, in 32-bit floats.
    for (const counts of [
      [1, 2, 3],
      [7, 0, 6],
      [33, 1, 19],
      [11, 13, 17],
    ]) {
      const total = counts.reduce((sum, count) => sum + count, 0);
      const sums = counts.map((_, i) => counts.slice(0, i + 1).reduce((sum, count) => sum + count, 0));
      const bounds = sums.map((sum) => Math.fround(sum / total));
      const places = Array.from({ length: total }, (_, i) =>
        bounds.findIndex((bound) => bound > Math.fround(i / total)),
      );
      assert.deepEqual(
        counts.map((_, device) => places.filter((place) => place === device).length),
        counts,
      );
    }
  });

  it("is checked against the GPUs and the layers of the model", async () => {
    const spec = specOf(path, {});
    const log = createLogger({ level: "silent", format: "text" });
    const placed = (layers: string | null, host: ReturnType<typeof hostOf>, engine: "llama" | "wasm" = "llama") =>
      withDeviceLayers(modelOf(layers), spec, engine, host, log);
    assert.equal(await placed(null, hostOf()), spec);
    assert.deepEqual(await placed("0:1;1:2", hostOf("A", "B")), { ...spec, gpuLayers: 4, gpuSplit: [1, 3] });
    await assert.rejects(placed("4", hostOf()), {
      code: "config_invalid",
      message: /expects a GPU; llama\.cpp finds none/,
    });
    await assert.rejects(placed("2:1", hostOf("A", "B")), { message: /names GPU 2; there are 0 \(A\), 1 \(B\)/ });
    await assert.rejects(placed("5", hostOf("A")), { message: /at most the 4 layers .*; got 5/ });
    await assert.rejects(placed("4", hostOf("A"), "wasm"), { message: /expects the llama engine; .* runs on wasm/ });
    assert.equal(await withDeviceLayers(modelOf("4", "--cpu"), spec, "wasm", hostOf(), log), spec);
  });

  it("conflicts with tune", () => {
    assertRefused({ command: "tune", flags: { "--device-layers": "4" } }, /"--device-layers" conflicts with tune/);
  });

  it("reaches llama.cpp as shares in native memory, which a load on the CPU ignores", async () => {
    const shares = withTensorSplit([1, 2.5], (split) => koffi.decode(split, koffi.array("float", 128)) as number[]);
    assert.deepEqual([...shares].slice(0, 3), [1, 2.5, 0]);
    assert.equal(
      withTensorSplit(null, (split) => split),
      null,
    );
    const spec = specOf(path, { maxSequences: 1, threads: 1 });
    const model = await llamaEngine.load({ ...spec, gpuSplit: [1, 3] }, () => {});
    model.dispose();
  });
});
