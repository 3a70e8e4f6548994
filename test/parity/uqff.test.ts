// UQFF and .cimatrix files tested with mistral.rs itself: troupe reads files that mistral.rs writes, and mistral.rs loads files
// that troupe writes.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { openCheckpoint } from "../../engines/files/checkpoint/checkpoint.ts";
import { convert } from "../../engines/quantization/conversion/conversion.ts";
import { planUqff } from "../../engines/quantization/conversion/plan-uqff.ts";
import { readImportance } from "../../engines/quantization/importance/importance-file.ts";
import { writeCimatrix } from "../../engines/quantization/importance/importance-writer.ts";
import { byTensor } from "../../engines/quantization/importance/module-names.ts";
import { parseLevel } from "../../engines/quantization/plan/levels.ts";
import { createRowReader } from "../../engines/quantization/rows/rows.ts";
import { writeSmallCheckpoint } from "../fixtures/checkpoints/small-checkpoint.ts";
import { pythonEnvironment } from "../server/python/environment.ts";

const scripts = fileURLToPath(new URL("../../../test/fixtures/uqff/", import.meta.url));
/** Maximum error of the weights of each type, relative to their root mean square. */
const errors = {
  ...{ q8_0: 0.01, q4_0: 0.12, q5_1: 0.05, hqq8: 0.01, hqq4: 0.12, fp8: 0.04, f8q8: 0.05 },
  ...{ afq8: 0.01, afq6: 0.03, afq4: 0.12, afq3: 0.25, mxfp4: 0.25 },
};

async function mistral(...args: string[]): Promise<string> {
  const python = await pythonEnvironment(join(scripts, "requirements.txt"));
  return (await promisify(execFile)(python, [join(scripts, "mistral.py"), ...args], { timeout: 120_000 })).stdout;
}

describe("mistral.rs", () => {
  let folder = "";
  let model = "";
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "troupe-mistral-"));
    model = join(folder, "model");
    await writeSmallCheckpoint(model);
    const config = join(model, "config.json");
    const fields = { hidden_act: "silu", rope_theta: 10000, torch_dtype: "float32" };
    writeFileSync(config, JSON.stringify({ ...JSON.parse(readFileSync(config, "utf8")), ...fields }));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  it("writes UQFF that troupe reads with the errors expected of its types", async () => {
    await mistral("write", model, folder, ...Object.keys(errors));
    const plain = await openCheckpoint(model);
    for (const [type, largest] of Object.entries(errors)) {
      const read = await openCheckpoint(join(folder, type), { uqff: join(folder, type, `${type}-0.uqff`) });
      assert.deepEqual(read.tensors.map(({ name }) => name).sort(), plain.tensors.map(({ name }) => name).sort());
      const [one, other] = [createRowReader(plain.files), createRowReader(read.files)];
      let [wrong, all] = [0, 0];
      for (const { name, rows } of plain.tensors) {
        const source = read.tensors.find((tensor) => tensor.name === name);
        assert.ok(source);
        const [expected, found] = [
          new Float32Array(rows.rows * rows.columns),
          new Float32Array(rows.rows * rows.columns),
        ];
        one.read(rows, 0, rows.rows, expected);
        other.read(source.rows, 0, rows.rows, found);
        for (const [i, value] of expected.entries()) {
          wrong += (value - (found[i] as number)) ** 2;
          if (source.isMatrix) all += value ** 2;
        }
      }
      one.close();
      other.close();
      const error = Math.sqrt(wrong / all);
      assert.ok(error > 0 && error < largest, `${type}: ${error}`);
    }
  });

  it("loads UQFF that troupe has written, and answers", async () => {
    const into = join(folder, "ours");
    const level = parseLevel("Q8_0", "isq");
    const options = {
      ...{ level, organization: "default" as const, topology: [], floatType: null },
      ...{ importance: null, overrides: {}, tokenizer: null, slice: null, architecture: null, queryHeads: 1 },
    };
    const { files } = await planUqff(join(model, "config.json"), options, {
      stem: "q8_0",
      producer: "test",
      warn: () => {},
    });
    for (const [name, conversion] of files) await convert(conversion, { target: join(into, name), threads: 1 });
    for (const name of ["config.json", "tokenizer.json"]) copyFileSync(join(model, name), join(into, name));
    assert.notEqual(await mistral("load", into, "q8_0-0.uqff"), "\n");
  });

  it("writes a .cimatrix that troupe reads, and reads that of troupe", async () => {
    const path = join(folder, "requests.cimatrix");
    await mistral("calibrate", model, path);
    const importance = byTensor(await readImportance(path), "llama");
    const { tensors } = await openCheckpoint(model);
    for (const { name, shape, isMatrix } of tensors) {
      if (isMatrix && name.startsWith("blk.")) assert.equal(importance.get(name)?.length, shape[0], name);
    }
    const ours = join(folder, "ours.cimatrix");
    const sums = [...importance].map(([name, squares]) => ({ name, squares, rows: Float32Array.of(1) }));
    await writeCimatrix(ours, sums, "llama");
    assert.deepEqual(byTensor(await readImportance(ours), "llama"), importance);
    await mistral("imatrix", model, ours);
  });
});
