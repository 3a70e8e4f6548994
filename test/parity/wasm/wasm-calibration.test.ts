// Calibration in the wasm engine: the collected matrix inputs equal those of a plain forward pass, also with experts and with
// several threads.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import type { InputSums, LoadedModel } from "../../../engines/engine.ts";
import { wasmEngine } from "../../../engines/wasm/engine.ts";
import { specOf } from "../../fixtures/models/models.ts";
import { writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";
import { tinyForward } from "../../fixtures/models/tiny-forward.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";

/** More tokens than fit into one forward pass. */
const tokens = Int32Array.from({ length: 100 }, (_, i) => (i * 37 + 5) % 200);

function feed(model: LoadedModel): void {
  const batch = new Batch(model.capacity.maxSequences, model.capacity.maxBatchTokens);
  assert.ok(model.kv.reserve(0, tokens.length));
  batch.addRow(0, tokens, 0, tokens.length, 1, 0);
  model.step(batch);
  model.kv.release(0);
}

describe("the inputs that the wasm engine collects", () => {
  let folder = "";
  before(() => {
    folder = mkdtempSync(join(tmpdir(), "troupe-calibration-"));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  async function collected(path: string, threads: number): Promise<readonly InputSums[]> {
    const model = await wasmEngine.load(specOf(path, { threads, kvType: "f32" }), () => {});
    try {
      const { calibration } = model;
      assert.ok(calibration);
      feed(model);
      assert.deepEqual([calibration.isCollecting, calibration.sums()], [false, []]);
      calibration.start();
      feed(model);
      const sums = calibration.sums();
      calibration.stop();
      feed(model);
      assert.deepEqual([calibration.isCollecting, calibration.sums()], [false, []]);
      return sums;
    } finally {
      model.dispose();
    }
  }

  it("are those of every matrix of the layers, with any number of threads", async () => {
    const path = join(folder, "tiny.gguf");
    await writeTinyModel(path, { seed: 3 });
    const expected = new Map<string, Float64Array>();
    const forward = await tinyForward(path);
    forward.run(tokens, (matrix, input) => {
      const sums = expected.get(matrix) ?? new Float64Array(input.length);
      expected.set(matrix, sums);
      for (const [i, value] of input.entries()) sums[i] = (sums[i] as number) + value * value;
      return null;
    });
    const layers = [...expected.keys()].filter((name) => name.startsWith("blk."));
    for (const threads of [1, 2, 3]) {
      const sums = await collected(path, threads);
      assert.deepEqual(sums.map(({ name }) => name).toSorted(), layers.toSorted());
      for (const { name, squares, rows } of sums) {
        assert.deepEqual([...rows], [tokens.length]);
        const wanted = expected.get(name) as Float64Array;
        const largest = Math.max(...wanted);
        for (const [i, value] of squares.entries()) {
          const error = Math.abs(value - (wanted[i] as number)) / largest;
          assert.ok(error < 1e-3, `${name}, column ${i}: ${value}, expected ${wanted[i]}`);
        }
      }
    }
  });

  it("are counted for each expert", async () => {
    const path = join(folder, "experts.gguf");
    await writeTinyArchitecture(path, "mixtral", { seed: 1 });
    const one = await collected(path, 1);
    const experts = one.filter(({ name }) => name.includes("_exps"));
    assert.ok(experts.length > 0);
    for (const { name, squares, rows } of experts) {
      // The router chooses two of four experts for each token.
      assert.equal(rows.length, 4);
      assert.equal(
        rows.reduce((sum, count) => sum + count, 0),
        2 * tokens.length,
        name,
      );
      const columns = squares.length / rows.length;
      for (const [expert, count] of rows.entries()) {
        const own = squares.subarray(expert * columns, (expert + 1) * columns);
        assert.equal(
          own.some((sum) => sum > 0),
          count > 0,
        );
      }
    }
    const three = new Map((await collected(path, 3)).map((sums) => [sums.name, sums]));
    for (const { name, rows } of one) assert.deepEqual(three.get(name)?.rows, rows);
  });
});
