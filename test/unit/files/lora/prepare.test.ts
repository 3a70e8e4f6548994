// Adapter preparation: the prepared file has the same effect on the model as the source, in every source format.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import fc from "fast-check";
import type { GgufValue } from "../../../../engines/files/gguf/cursor.ts";
import { readTensorTable, type TensorTable } from "../../../../engines/files/gguf/tensors.ts";
import { prepareAdapter, prepareMerged } from "../../../../engines/files/lora/prepare.ts";
import { type LoraOptions, mergedModel, writeGgufAdapter, writePeftAdapter } from "../../../fixtures/lora/lora.ts";
import {
  optionsFor,
  type PreparedPair,
  productOf,
  queryModule,
  queryPair,
  readPrepared,
  temporaryFolder,
  tensor,
  writeHandmade,
  writeSmallModel,
} from "../../../fixtures/lora/lora-prepared.ts";

const folder = temporaryFolder();
const modelPath = join(folder, "model.gguf");
const prepared = join(folder, "prepared");
const options = optionsFor(modelPath, prepared);
let model: TensorTable | null = null;
before(() => writeSmallModel(modelPath));

describe("preparing an adapter", () => {
  it("reorders the rows of queries, folds the scale in, and always writes the same bytes", async () => {
    const rows = Array.from({ length: 16 }, (_, i) => i);
    const source = await writeHandmade(join(folder, "golden"), {
      tensors: [
        tensor(`${queryModule}.lora_A.weight`, [1, 16], [1, ...Array(15).fill(0)]),
        tensor(`${queryModule}.lora_B.weight`, [16, 1], rows),
      ],
      config: { lora_alpha: 3 },
    });
    const { generation, path, rank, bytes } = await prepareAdapter({ ...options, source });
    assert.equal(generation, "5ab84efe274488463b186123f496304d60307e4b8121481d23799c44068b9e0c");
    assert.deepEqual({ path, rank, bytes }, { path: join(prepared, `${generation}.gguf`), rank: 1, bytes: 64 });
    const pairs = await readPrepared(path);
    assert.deepEqual([...pairs.keys()], ["blk.0.attn_q.weight"]);
    const column = productOf(pairs.get("blk.0.attn_q.weight")!).filter((_, i) => i % 16 === 0);
    assert.deepEqual(
      column,
      [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15].map((row) => 3 * row),
    );
    const { fields } = await readTensorTable(path);
    assert.deepEqual(
      fields,
      new Map<string, GgufValue>([
        ["general.architecture", "llama"],
        ["general.type", "adapter"],
        ["adapter.type", "lora"],
      ]),
    );
  });

  it("gives the PEFT form of an adapter, the GGUF form and the prepared one the same generation", async () => {
    const lora: LoraOptions = { modelPath, seed: 3, rank: 3, targets: ["q_proj", "k_proj", "down_proj", "lm_head"] };
    await writePeftAdapter(join(folder, "both"), lora);
    await writeGgufAdapter(join(folder, "both.gguf"), lora);
    const peft = await prepareAdapter({ ...options, source: join(folder, "both") });
    for (const source of [join(folder, "both.gguf"), peft.path]) {
      assert.deepEqual(await prepareAdapter({ ...options, source }), peft);
    }
  });

  it("prepares the same adapter twice concurrently, and leaves no other files", async () => {
    const own = { ...optionsFor(modelPath, join(folder, "twice")), source: join(folder, "golden") };
    const [one, other] = await Promise.all([prepareAdapter(own), prepareAdapter(own)]);
    assert.deepEqual(one, other);
    assert.deepEqual(readdirSync(own.folder), [`${one.generation}.gguf`]);
  });

  it("gives another generation if a single value differs", async () => {
    const [a, b] = queryPair();
    const changed = { ...b!, values: b!.values.map((value, i) => (i === 9 ? value * 1.01 : value)) };
    const first = await writeHandmade(join(folder, "one"), { tensors: [a!, b!] });
    const second = await writeHandmade(join(folder, "other"), { tensors: [a!, changed] });
    const { generation } = await prepareAdapter({ ...options, source: first });
    assert.notEqual((await prepareAdapter({ ...options, source: second })).generation, generation);
  });

  it("keeps magnitudes that 16 bits could not hold together, by scaling each rank separately", async () => {
    const sizes = [1e6, 1e-6, 1];
    const source = await writeHandmade(join(folder, "sizes"), {
      tensors: [
        tensor(
          `${queryModule}.lora_A.weight`,
          [3, 16],
          sizes.flatMap((size) => Array(16).fill(size)),
        ),
        tensor(
          `${queryModule}.lora_B.weight`,
          [16, 3],
          Array(16)
            .fill(sizes.map((size) => 1 / size))
            .flat(),
        ),
      ],
      config: { r: 3, lora_alpha: 3 },
    });
    const pairs = await readPrepared((await prepareAdapter({ ...options, source })).path);
    for (const value of productOf(pairs.get("blk.0.attn_q.weight")!)) assert.ok(Math.abs(value - 3) < 0.003);
  });

  it("accepts untrained adapters, whose product is zero", async () => {
    const tensors = [queryPair()[0]!, tensor(`${queryModule}.lora_B.weight`, [16, 1], 0)];
    const source = await writeHandmade(join(folder, "untrained"), { tensors });
    const pairs = await readPrepared((await prepareAdapter({ ...options, source })).path);
    assert.ok(productOf(pairs.get("blk.0.attn_q.weight")!).every((value) => value === 0));
  });

  it("changes every matrix like merging the adapter into it", async () => {
    const modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"];
    const adapters = fc.record({
      seed: fc.nat(),
      rank: fc.integer({ min: 1, max: 9 }),
      alpha: fc.double({ min: 0.5, max: 64, noNaN: true }),
      dtype: fc.constantFrom("F32", "F16", "BF16"),
      rslora: fc.boolean(),
      targets: fc.subarray(modules, { minLength: 1 }),
      rankPattern: fc.constantFrom({}, { k_proj: 5 }, { "layers.0.mlp.up_proj": 2, v_proj: 3 }),
      alphaPattern: fc.constantFrom({}, { q_proj: 7 }, { "mlp.down_proj": 0.5 }),
      magnitude: fc.constantFrom(0.001, 0.1, 30),
    }) satisfies fc.Arbitrary<Omit<LoraOptions, "modelPath">>;
    let count = 0;
    const check = async (lora: Omit<LoraOptions, "modelPath">): Promise<void> => {
      const source = join(folder, `random-${count++}`);
      await writePeftAdapter(source, { ...lora, modelPath });
      await mergedModel(modelPath, source, `${source}.gguf`);
      const { path, rank } = await prepareAdapter({ ...options, source });
      const pairs = await readPrepared(path);
      assert.equal(pairs.size, lora.targets!.length);
      assert.equal(rank, Math.max(...[...pairs.values()].map((pair) => pair.rank)));
      for (const [name, pair] of pairs) checkSame(pair, await changeOf(name, `${source}.gguf`));
    };
    await fc.assert(fc.asyncProperty(adapters, check), { numRuns: 12 });
  });
});

describe("preparing several adapters as a single one", () => {
  it("has the effect of all of them, each times its weight", async () => {
    const sources = [
      { folder: join(folder, "first"), weight: 0.5, targets: ["q_proj", "v_proj"], rank: 2 },
      { folder: join(folder, "second"), weight: -2, targets: ["q_proj", "up_proj"], rank: 3 },
    ];
    for (const [seed, { folder: own, targets, rank }] of sources.entries()) {
      await writePeftAdapter(own, { modelPath, seed, targets, rank });
    }
    await mergedModel(modelPath, sources, join(folder, "both-merged.gguf"));
    const merged = await prepareMerged(
      sources.map(({ folder: source, weight }) => ({ source, weight })),
      options,
    );
    const pairs = await readPrepared(merged.path);
    const ranks = [...pairs].map(([name, { rank }]) => [name, rank]);
    assert.deepEqual(ranks, [
      ["blk.0.attn_q.weight", 5],
      ["blk.0.attn_v.weight", 2],
      ["blk.0.ffn_up.weight", 3],
    ]);
    assert.equal(merged.rank, 5);
    for (const [name, pair] of pairs) checkSame(pair, await changeOf(name, join(folder, "both-merged.gguf")));
  });

  it("compares the rank limit with the sum of their ranks", async () => {
    const limits = { maxRank: 4, maxBytes: 2 ** 20 };
    const sources = ["first", "second"].map((name) => ({ source: join(folder, name), weight: 1 }));
    await assert.rejects(prepareMerged(sources, { ...options, limits }), { code: "lora_rank_limit_exceeded" });
  });
});

/** Returns the change of a matrix: its values after merging minus those before. */
async function changeOf(name: string, mergedPath: string): Promise<number[]> {
  model ??= await readTensorTable(modelPath);
  const { offset, bytes } = model.tensors.get(name)!;
  const [before, after] = [modelPath, mergedPath].map((path) => {
    const own = Uint8Array.from(readFileSync(path).subarray(offset, offset + bytes));
    return new Float32Array(own.buffer);
  });
  return Array.from(after!, (value, i) => value - before![i]!);
}

/** Asserts that b x a equals the change, within the rounding of 16-bit factors and 32-bit sums. */
function checkSame(pair: PreparedPair, change: readonly number[]): void {
  const sizes = productOf({ ...pair, a: pair.a.map(Math.abs), b: pair.b.map(Math.abs) });
  const product = productOf(pair);
  assert.equal(product.length, change.length);
  for (const [i, value] of product.entries()) {
    const difference = Math.abs(value - change[i]!);
    assert.ok(difference <= sizes[i]! * 2 ** -9 + 1e-5, `value ${i} is ${value}, where ${change[i]} belongs`);
  }
}
