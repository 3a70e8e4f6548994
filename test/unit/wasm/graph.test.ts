import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import { readTensorTable, type TensorInfo, type TensorTable } from "../../../engines/gguf/tensors.ts";
import { buildGraph, findArchitecture } from "../../../engines/wasm/graph.ts";
import { type Hyperparameters, readHyperparameters } from "../../../engines/wasm/hyperparameters.ts";
import { tinyModel } from "../../fixtures/models.ts";

const llama = findArchitecture("llama");

describe("the graph of a model file", () => {
  let table: TensorTable;
  let shape: Hyperparameters;

  before(async () => {
    table = await readTensorTable(await tinyModel());
    shape = readHyperparameters(table.fields, table.tensors, null);
  });

  /** The file's tensors with one changed, added or (null) taken away. */
  function changed(name: string, change: Partial<TensorInfo> | null): TensorTable {
    const tensors = new Map(table.tensors);
    const [first] = table.tensors.values();
    if (change === null) tensors.delete(name);
    else tensors.set(name, { ...(tensors.get(name) ?? (first as TensorInfo)), name, ...change });
    return { ...table, tensors };
  }

  it("has every tensor of the file in it once, and the embedding as output where that is tied", () => {
    const { layers, embedding, output } = buildGraph(llama, shape, table);
    assert.equal(layers.length, shape.layers);
    const untied = table.tensors.has("output.weight");
    assert.equal(output.tensor === embedding.tensor, !untied);
    const tied = buildGraph(llama, shape, changed("output.weight", null));
    assert.equal(tied.output.tensor, tied.embedding.tensor);
  });

  it("refuses an architecture it does not run, naming those it does", () => {
    assert.throws(() => findArchitecture("mamba"), { code: "unsupported", message: /"mamba"; it runs llama/ });
  });

  it("refuses a tensor it has no use for, which would make every answer wrong", () => {
    const withBias = changed("blk.0.attn_q.bias", { shape: [64], type: 0 });
    assert.throws(() => buildGraph(llama, shape, withBias), { code: "unsupported", message: /"blk\.0\.attn_q\.bias"/ });
  });

  it("refuses a tensor that is missing, of another shape, or of a type without a kernel", () => {
    const name = "blk.1.ffn_up.weight";
    const cases = [
      [changed(name, null), "model_file_invalid", /has no tensor "blk\.1\.ffn_up\.weight"/],
      [changed(name, { shape: [64, 96] }), "model_file_invalid", /as 64 x 96, where 64 x 128 belongs/],
      [changed(name, { type: 14 }), "unsupported", /is Q6_K; the wasm engine takes F32, F16/],
      [changed("output_norm.weight", { type: 1 }), "unsupported", /is F16; the wasm engine takes F32 there/],
    ] as const;
    for (const [broken, code, message] of cases) {
      assert.throws(() => buildGraph(llama, shape, broken), { code, message });
    }
  });
});
