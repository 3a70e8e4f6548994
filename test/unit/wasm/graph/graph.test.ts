import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import { readTensorTable, type TensorInfo, type TensorTable } from "../../../../engines/files/gguf/tensors.ts";
import type { LayerStep } from "../../../../engines/wasm/graph/architectures/architecture.ts";
import { findArchitecture } from "../../../../engines/wasm/graph/architectures/registry.ts";
import {
  type AttentionGraphStep,
  buildGraph,
  type FeedForwardGraphStep,
} from "../../../../engines/wasm/graph/graph.ts";
import { readHyperparameters } from "../../../../engines/wasm/graph/hyperparameters.ts";
import type { Hyperparameters } from "../../../../engines/wasm/graph/shape.ts";
import { tinyModel } from "../../../fixtures/models/models.ts";

const llama = findArchitecture("llama");

describe("the graph of a model file", () => {
  let table: TensorTable;
  let shape: Hyperparameters;

  before(async () => {
    table = await readTensorTable(await tinyModel());
    shape = readHyperparameters(llama, table, { always: null, short: null, long: null });
  });

  /** Returns the file's tensors with one tensor changed, added or removed (null). */
  function changed(name: string, change: Partial<TensorInfo> | null): TensorTable {
    const tensors = new Map(table.tensors);
    const [first] = table.tensors.values();
    if (change === null) tensors.delete(name);
    else tensors.set(name, { ...(tensors.get(name) ?? (first as TensorInfo)), name, ...change });
    return { ...table, tensors };
  }

  it("has every tensor of the file once, and the embedding as output if they are tied", () => {
    const { layers, embedding, output } = buildGraph(llama, shape, table);
    assert.equal(layers.length, shape.layers);
    const untied = table.tensors.has("output.weight");
    assert.equal(output?.tensor === embedding.tensor, !untied);
    const tied = buildGraph(llama, shape, changed("output.weight", null));
    assert.equal(tied.output?.tensor, tied.embedding.tensor);
  });

  it("rejects an unsupported architecture, naming the supported ones", () => {
    assert.throws(() => findArchitecture("mamba"), { code: "unsupported", message: /"mamba"; it runs llama/ });
  });

  it("rejects an unused tensor, which would make every answer wrong", () => {
    for (const name of ["blk.0.attn_q_norm.weight", "blk.0.attn_norm.bias", "blk.0.attn_qkv.bias"]) {
      const stranger = changed(name, { shape: [shape.headLength], type: 0 });
      assert.throws(
        () => buildGraph(llama, shape, stranger),
        ({ code, message }) =>
          code === "unsupported" && message.includes(`"${name}" that the wasm engine does not use`),
      );
    }
  });

  it("rejects a tensor that is missing, of a wrong shape, or of a type without a kernel", () => {
    const name = "blk.1.ffn_up.weight";
    const cases = [
      [changed(name, null), "model_file_invalid", /has no tensor "blk\.1\.ffn_up\.weight"/],
      [changed(name, { shape: [64, 96] }), "model_file_invalid", /as 64 x 96; expected 64 x 128/],
      [changed(name, { type: 17 }), "unsupported", /is IQ2_XS; the wasm engine takes F32, F16/],
      [changed("output_norm.weight", { type: 1 }), "unsupported", /is F16; the wasm engine takes F32 there/],
    ] as const;
    for (const [broken, code, message] of cases) {
      assert.throws(() => buildGraph(llama, shape, broken), { code, message });
    }
  });

  it("takes the biases that a file has, only those of matrices if norms have none", () => {
    const { headLength, heads, vocabSize } = shape;
    const rows = heads * headLength;
    const biased = changed("blk.0.attn_q.bias", { shape: [rows], type: 0 });
    const attention = attentionOf(buildGraph(llama, shape, biased).layers[0]);
    assert.equal(attention.query.bias?.name, "blk.0.attn_q.bias");
    assert.equal(attention.key.bias, null);
    const wrong = changed("blk.0.attn_q.bias", { shape: [rows + 1], type: 0 });
    assert.throws(() => buildGraph(llama, shape, wrong), { code: "model_file_invalid", message: /attn_q\.bias/ });
    const tied = { ...changed("output.weight", null) };
    const tensors = new Map(tied.tensors);
    const [any] = tensors.values();
    tensors.set("output.bias", { ...(any as TensorInfo), name: "output.bias", shape: [vocabSize], type: 0 });
    const { embedding, output } = buildGraph(llama, shape, { ...tied, tensors });
    assert.deepEqual([embedding.bias, output?.bias?.name], [null, "output.bias"]);
  });

  it("splits matrices that are one tensor in the file, each with a separate name", () => {
    const { width, heads, kvHeads, headLength, feedForward } = shape;
    const tensors = new Map(table.tensors);
    const [any] = table.tensors.values();
    const put = (name: string, ...lengths: number[]) =>
      tensors.set(name, { ...(any as TensorInfo), name, shape: lengths, type: 0 });
    const rows = [heads * headLength, kvHeads * headLength, kvHeads * headLength];
    const total = rows.reduce((sum, count) => sum + count, 0);
    for (let layer = 0; layer < shape.layers; layer++) {
      for (const name of ["attn_q", "attn_k", "attn_v", "ffn_gate"]) tensors.delete(`blk.${layer}.${name}.weight`);
      put(`blk.${layer}.attn_qkv.weight`, width, total);
      put(`blk.${layer}.attn_qkv.bias`, total);
      put(`blk.${layer}.ffn_up.weight`, width, 2 * feedForward);
    }
    const [layer] = buildGraph(findArchitecture("phi3"), shape, { ...table, tensors }).layers;
    const { query, key, value } = attentionOf(layer);
    const feedForwardStep = layer?.find(({ kind }) => kind === "feedForward");
    const { gate, up } = (feedForwardStep ?? {}) as FeedForwardGraphStep;
    const fused = [query, key, value];
    assert.deepEqual(
      fused.map((matrix) => [matrix.firstRow, matrix.rows, matrix.bias?.name]),
      rows.map((count, i) => [rows.slice(0, i).reduce((sum, one) => sum + one, 0), count, "blk.0.attn_qkv.bias"]),
    );
    assert.deepEqual([gate?.firstRow, up.firstRow, gate?.tensor], [0, feedForward, up.tensor]);
    assert.equal(new Set([...fused, gate, up].map((matrix) => matrix?.name)).size, 5);
  });
});

function attentionOf(layer: readonly { readonly kind: string }[] | undefined): AttentionGraphStep {
  return layer?.find(({ kind }) => kind === "attention") as AttentionGraphStep;
}

describe("the steps of architectures", () => {
  const sizes = { layers: 6, headLength: 32, attentionScale: 1, attentionSoftcap: 0, window: 20 };

  function stepsOf(name: string, changes: object = {}, tensors: readonly string[] = []): readonly LayerStep[] {
    const shape = { ...sizes, ropes: [{}], slides: [], ...changes } as unknown as Hyperparameters;
    const has = (tensor: string) => tensors.includes(tensor);
    return findArchitecture(name).steps({ layer: 2, shape, has });
  }

  const kinds = (steps: readonly LayerStep[]) => steps.map(({ kind }) => kind);

  it("let a token see as many positions as the window has, including its own, in a sliding layer", () => {
    const seen = (slides: boolean, ropes = 1) => {
      const attention = stepsOf("gemma3", { slides: Array(6).fill(slides), ropes: Array(ropes).fill({}) })[1];
      assert.ok(attention?.kind === "attention");
      return [attention.behind, attention.ahead, attention.rope];
    };
    assert.deepEqual(seen(true), [19, 0, 0]);
    assert.deepEqual(seen(true, 2), [19, 0, 1]);
    assert.deepEqual(seen(false, 2), [Number.POSITIVE_INFINITY, 0, 0]);
  });

  it("run stablelm's blocks side by side if a layer has one norm for both: first the block that keeps its input", () => {
    assert.deepEqual(kinds(stepsOf("stablelm", {}, ["ffn_norm"])), ["norm", "attention", "norm", "feedForward"]);
    assert.deepEqual(kinds(stepsOf("stablelm")), ["norm", "feedForward", "attention"]);
  });

  it("normalise stablelm's heads if a layer has weights for it", () => {
    const norms = (tensors: readonly string[]) => {
      const attention = stepsOf("stablelm", {}, ["ffn_norm", ...tensors])[1];
      assert.ok(attention?.kind === "attention");
      return attention.norms?.span;
    };
    assert.equal(norms([]), undefined);
    assert.equal(norms(["attn_q_norm"]), "head");
  });
});
