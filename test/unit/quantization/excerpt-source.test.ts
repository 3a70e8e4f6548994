// Excerpts of model sources: they contain the same tensors as a GGUF excerpt, and conversions to other types can read them.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { writeExcerpt } from "../../../engines/files/gguf/excerpt.ts";
import { readTensorTable } from "../../../engines/files/gguf/tensors.ts";
import { convert, planConversion } from "../../../engines/quantization/conversion/conversion.ts";
import { excerptSource } from "../../../engines/quantization/conversion/excerpt-source.ts";
import { type ModelSource, openGgufSource } from "../../../engines/quantization/conversion/model-source.ts";
import { openModelSource } from "../../../engines/quantization/conversion/plan-model.ts";
import { writeSmallCheckpoint } from "../../fixtures/checkpoints/small-checkpoint.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";

describe("an excerpt of a model source", () => {
  let folder = "";
  before(() => {
    folder = mkdtempSync(join(tmpdir(), "troupe-excerpt-source-"));
  });
  after(() => rmSync(folder, { recursive: true, force: true }));

  const written = async (source: ModelSource) => {
    const path = join(folder, "excerpt.gguf");
    const types = new Map(source.tensors.map(({ name, type }) => [name, type]));
    await convert(await planConversion({ source, types, importance: new Map(), fileType: null }), {
      target: path,
      threads: 1,
    });
    return await readTensorTable(path);
  };
  const shapes = ({ tensors }: Awaited<ReturnType<typeof readTensorTable>>) =>
    [...tensors.values()].map(({ name, shape, type }) => [name, ...shape, type]).sort();

  it("has the tensors of the GGUF excerpt of the same size", async () => {
    const path = await tinyModel();
    const source = await openGgufSource(path);
    const weights = source.tensors.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    const other = join(folder, "other.gguf");
    for (const most of [1, weights / 2, weights]) {
      await writeExcerpt(path, other, most);
      const [ours, theirs] = [await written(excerptSource(source, most)), await readTensorTable(other)];
      assert.deepEqual(shapes(ours), shapes(theirs));
      const layers = ({ fields }: typeof ours) => fields.get(`${fields.get("general.architecture")}.block_count`);
      assert.equal(layers(ours), layers(theirs));
    }
  });

  it("is the whole model if that is small", async () => {
    const source = await openGgufSource(await tinyModel());
    assert.deepEqual(excerptSource(source, 1e12).tensors, source.tensors);
  });

  it("cuts the layers and tokens of a checkpoint", async () => {
    await writeSmallCheckpoint(join(folder, "checkpoint"), { layers: 3, vocabSize: 2000 });
    const path = join(folder, "checkpoint", "config.json");
    const source = await openModelSource(
      path,
      { overrides: {}, tokenizer: null, slice: null, architecture: null, queryHeads: 1 },
      () => {},
    );
    const { tensors, fields } = await written(excerptSource(source, 1));
    assert.equal(fields.get("llama.block_count"), 1);
    assert.deepEqual(tensors.get("token_embd.weight")?.shape, [64, 1024]);
    assert.equal(
      [...tensors.keys()].some((name) => name.startsWith("blk.1.")),
      false,
    );
  });

  it("has no DeepStack vectors, of which the model may have more than the excerpt has layers", async () => {
    const path = join(folder, "deepstack.gguf");
    await writeTinyArchitecture(path, "qwen3vl", { seed: 3 });
    const { fields } = await written(excerptSource(await openGgufSource(path), 1));
    assert.equal(fields.get("qwen3vl.block_count"), 1);
    assert.equal(fields.get("qwen3vl.n_deepstack_layers"), 0);
  });

  it("is refused for a model without layers", async () => {
    const source = await openGgufSource(await tinyModel());
    const pairs = new Map([...source.pairs].filter(([key]) => !key.endsWith(".block_count")));
    assert.throws(() => excerptSource({ ...source, pairs }, 1), { code: "unsupported" });
  });
});
