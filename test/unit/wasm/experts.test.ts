import assert from "node:assert/strict";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { readTensorTable, type TensorInfo, type TensorTable } from "../../../engines/files/gguf/tensors.ts";
import { adapterSites } from "../../../engines/wasm/adapters/sites.ts";
import { findArchitecture } from "../../../engines/wasm/graph/architectures/registry.ts";
import { buildGraph } from "../../../engines/wasm/graph/graph.ts";
import { readHyperparameters } from "../../../engines/wasm/graph/hyperparameters.ts";
import type { Hyperparameters } from "../../../engines/wasm/graph/shape.ts";
import { expertRows, expertTokens } from "../../../engines/wasm/pass/expert-routing.ts";
import { divideGraph } from "../../../engines/wasm/plan/partition-plan.ts";
import { type TinyArchitecture, writeTinyArchitecture } from "../../fixtures/models/tiny-architectures.ts";
import { inTemporaryFolder } from "../files/gguf/gguf-bytes.ts";

const noFactors = { always: null, short: null, long: null };
const tables = new Map<TinyArchitecture, TensorTable>();

before(async () => {
  for (const name of ["mixtral", "qwen3moe"] as const) {
    await inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      await writeTinyArchitecture(path, name, { seed: 1 });
      tables.set(name, await readTensorTable(path));
    });
  }
});

/** Returns the shape of the file's model with some keys changed or removed (null). */
function shapeOf(name: TinyArchitecture, changes: Readonly<Record<string, number | null>> = {}): Hyperparameters {
  const table = tables.get(name)!;
  const fields = new Map(table.fields);
  const architecture = String(fields.get("general.architecture"));
  for (const [key, value] of Object.entries(changes)) {
    if (value === null) fields.delete(`${architecture}.${key}`);
    else fields.set(`${architecture}.${key}`, value);
  }
  return readHyperparameters(findArchitecture(architecture), { ...table, fields }, noFactors);
}

/** Returns the graph of the file with one more tensor. */
function graphOf(name: TinyArchitecture, added: Partial<TensorInfo> = {}) {
  const table = tables.get(name)!;
  const [first] = table.tensors.values();
  const tensors = new Map(table.tensors);
  if (added.name !== undefined) tensors.set(added.name, { ...first!, ...added });
  const shape = shapeOf(name);
  return buildGraph(findArchitecture(shape.architecture), shape, { ...table, tensors });
}

describe("a model with experts", () => {
  it("has as many of them, and as long, as its keys say", () => {
    assert.deepEqual(shapeOf("mixtral").experts, { count: 4, used: 2, feedForward: 96 });
    assert.deepEqual(shapeOf("qwen3moe").experts, { count: 8, used: 3, feedForward: 64 });
    assert.equal(shapeOf("mixtral", { expert_count: null, expert_used_count: null }).experts, null);
  });

  it("divides the feed-forward's length among the used experts if qwen3moe gives no other", () => {
    const changes = { expert_feed_forward_length: null, feed_forward_length: 192 };
    assert.equal(shapeOf("qwen3moe", changes).experts?.feedForward, 64);
  });

  it("is rejected if its keys ask for missing or unsupported features", () => {
    const cases = [
      ["mixtral", { expert_used_count: 5 }, "model_file_invalid", /llama\.expert_used_count is 5/],
      ["mixtral", { expert_used_count: 0 }, "model_file_invalid", /llama\.expert_used_count is 0/],
      ["qwen3moe", { expert_count: null }, "model_file_invalid", /qwen3moe\.expert_count/],
      ["qwen3moe", { expert_group_count: 2 }, "unsupported", /qwen3moe\.expert_group_count is 2/],
    ] as const;
    for (const [name, changes, code, message] of cases) {
      assert.throws(() => shapeOf(name, changes), { code, message });
    }
  });

  it("is rejected with the name of an unused tensor", () => {
    for (const [tensor, shape] of [
      ["blk.0.ffn_up_exps.bias", [96, 4]],
      ["blk.1.ffn_down_exps.scale", [4]],
      ["blk.0.ffn_gate_shexp.weight", [128, 96]],
      ["blk.2.exp_probs_b.bias", [4]],
    ] as const) {
      assert.throws(
        () => graphOf("mixtral", { name: tensor, shape, type: 0 }),
        ({ code, message }) =>
          code === "unsupported" && message.includes(`"${tensor}" that the wasm engine does not use`),
      );
    }
  });

  it("is rejected if each expert is a separate tensor, which no engine supports", () => {
    const old = { name: "blk.0.ffn_gate.0.weight", shape: [128, 96] };
    assert.throws(() => graphOf("mixtral", old), {
      code: "model_file_invalid",
      message: /tensor for each expert \("blk\.0\.ffn_gate\.0\.weight"\)/,
    });
  });

  it("describes all experts of a layer as one object, however many there are", () => {
    const step = graphOf("qwen3moe").layers[0]?.find(({ kind }) => kind === "experts");
    assert.ok(step?.kind === "experts");
    const { up, down } = step;
    assert.deepEqual([up.count, up.rows, up.columns], [8, 64, 128]);
    assert.deepEqual([down.count, down.rows, down.columns], [8, 128, 64]);
  });

  it("takes adapters only in its attention and its output", () => {
    const graph = graphOf("mixtral");
    const divided = divideGraph({ graph, shape: shapeOf("mixtral"), threads: 2, mixture: null });
    const changed = adapterSites(divided).flatMap(({ matrices }) => matrices.map(({ name }) => name));
    assert.ok(changed.includes("blk.2.attn_output.weight") && changed.includes("output.weight"));
    assert.deepEqual(
      changed.filter((name) => name.includes("ffn")),
      [],
    );
  });
});

describe("the scratch of experts", () => {
  const experts = (used: number) => ({ experts: { count: 512, used, feedForward: 768 } });

  it("holds all tokens of a pass with each of their experts", () => {
    assert.equal(expertTokens(experts(8), 64), 64);
    assert.equal(expertRows(experts(8), 64), 512);
  });

  it("is bounded for many used experts: fewer tokens are routed at a time, at least one", () => {
    for (const used of [16, 17, 100, 512]) {
      const rows = expertRows(experts(used), 64);
      assert.ok(rows <= 1024 && rows > 1024 - used, `${rows} rows for ${used} experts`);
    }
    assert.equal(expertTokens(experts(2000), 64), 1);
  });

  it("is none without experts", () => {
    assert.equal(expertRows({ experts: null }, 64), 0);
  });
});
