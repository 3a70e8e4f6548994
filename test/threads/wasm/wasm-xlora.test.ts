// X-LoRA in the wasm engine on real threads, compared with a reference implementation (fixtures/lora/xlora-reference.ts).
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import type { MixtureSpec } from "../../../engines/engine.ts";
import type { WasmModel } from "../../../engines/wasm/model.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import type { XloraOptions } from "../../fixtures/lora/xlora.ts";
import { assertNear } from "./wasm-steps.ts";
import {
  assertAllNear,
  generate,
  isNear,
  limits,
  load,
  modelPath,
  otherText,
  prepare,
  reference,
  step,
  text,
} from "./wasm-xlora-rig.ts";

const ownOptions = [
  { rank: 3, alpha: 3, targets: ["q_proj", "lm_head"] },
  { rank: 16, alpha: 16, targets: ["v_proj"] },
  { rank: 5, alpha: 5, targets: "all-linear" as const },
];

const kinds: Readonly<Record<string, Partial<XloraOptions>>> = {
  "one linear layer, one weight an adapter": {},
  "two linear layers, a weight a layer": { depth: 2, layerwise: true },
  "three linear layers, no bias, no rectifier": { depth: 3, layerwise: true, bias: false, rectifies: false },
  "no softmax, and a global weight": { softmax: false, spread: 0.5, globalWeight: 0.7, layerwise: true },
  "a temperature, the greatest weight alone": { temperature: 0.5, topK: 1 },
  "the greatest two, made to sum up to 1": { adapters: 4, topK: 2, softmaxTopK: true, layerwise: true },
  "all of them through a second softmax": { softmaxTopK: true, globalWeight: 2 },
  "a first pass with adapters": { firstPassWeight: 0.4, globalWeight: 1.5, depth: 2, layerwise: true },
  "ranks and matrices of its own for each adapter, the output among them": {
    layerwise: true,
    adapterOptions: (index) => ownOptions[index]!,
  },
};

describe("an X-LoRA of the wasm engine", () => {
  for (const [i, [name, options]] of Object.entries(kinds).entries()) {
    const threads = 1 + (i % 3);
    it(`gives the definition's logits: ${name}, ${threads} threads`, async (test) => {
      const { written, spec } = await prepare(options);
      const model = await load(test, spec, { threads });
      const tokens = text.subarray(0, 14);
      const expected = await reference(written, tokens, 9);
      assertAllNear(generate(model, tokens, 9), expected);
      const plain = await load(test, null, { threads });
      assert.ok(!isNear(generate(plain, tokens, 9), expected), "it changes something");
    });
  }

  for (const threads of [1, 2, 3]) {
    it(`gives rows the same results in a batch as alone, bit for bit: ${threads} threads`, async (test) => {
      const { spec } = await prepare({ layerwise: true, depth: 2, firstPassWeight: 0.3 });
      const model = await load(test, spec, { threads });
      const alone = [generate(model, text.subarray(0, 76), 73, 0), generate(model, otherText.subarray(0, 14), 9, 1)];
      model.kv.release(0);
      model.kv.release(1);
      step(model, [
        { slot: 1, from: 0, to: 5, tokens: otherText, logitsCount: 0 },
        { slot: 2, from: 0, to: 5, logitsCount: 0 },
      ]);
      const together = [
        step(model, [
          { slot: 3, from: 0, to: 30, tokens: otherText, logitsCount: 2 },
          { slot: 2, from: 5, to: 73 },
          { slot: 1, from: 5, to: 9, tokens: otherText },
        ]),
        ...[0, 1, 2].map((i) =>
          step(model, [
            { slot: 3, from: 30 + i, to: 31 + i, tokens: otherText },
            { slot: 2, from: 73 + i, to: 74 + i },
            { slot: 1, from: 9 + i, to: 10 + i, tokens: otherText },
          ]),
        ),
      ];
      for (const [i, [, long, short]] of together.entries()) {
        assert.deepEqual(long![0], alone[0]![i]);
        assert.deepEqual(short![0], alone[1]![i]);
      }
    });
  }

  it("continues from a copied, saved, exported or truncated prefix", async (test) => {
    const { spec } = await prepare({ layerwise: true });
    const model = await load(test, spec);
    const { kv } = model;
    const expected = generate(model, text.subarray(0, 40), 36);
    const rest = (slot: number) => step(model, [{ slot, from: 20, to: 40, logitsCount: 4 }])[0]!;
    kv.copyPrefix(0, 1, 20);
    assertAllNear(rest(1), expected.slice(1));
    const saved = kv.save(0, 30);
    const bytes = kv.export(saved);
    for (const slot of [0, 1]) kv.release(slot);
    kv.restore(2, saved, 20);
    assertAllNear(rest(2), expected.slice(1));
    kv.drop(saved);
    kv.release(2);
    const imported = kv.import(bytes, 30);
    assert.ok(imported);
    kv.restore(0, imported, 30);
    assertAllNear(rest(0), expected.slice(1));
    assert.deepEqual(
      [model.capabilities.truncate, model.capabilities.copyPrefix, model.capabilities.saveState],
      [true, true, true],
    );
  });

  it("weighs every output token of a row, including rejected drafts", async (test) => {
    const { written, spec } = await prepare({ layerwise: true });
    const model = await load(test, spec);
    const expected = await reference(written, text.subarray(0, 20), 10);
    step(model, [{ slot: 0, from: 0, to: 9, logitsCount: 0 }]);
    const drafted = Int32Array.from(text);
    drafted.set(otherText.subarray(12, 16), 12);
    const [first] = step(model, [{ slot: 0, from: 9, to: 16, tokens: drafted, logitsCount: 7 }]);
    assertAllNear(first!.slice(0, 3), expected.slice(0, 3));
    assertAllNear(step(model, [{ slot: 0, from: 12, to: 20, logitsCount: 8 }])[0]!, expected.slice(3));
  });

  for (const keptAfter of [0, 2]) {
    it(`keeps the weights of a sequence after ${keptAfter} tokens after its prompt`, async (test) => {
      const { written, spec } = await prepare({ layerwise: true, spread: 4 }, keptAfter);
      const model = await load(test, spec);
      const tokens = text.subarray(0, 20);
      const expected = await reference(written, tokens, 9, { keptAfter });
      const forever = await reference(written, tokens, 9);
      assert.ok(!isNear(forever.slice(keptAfter + 1), expected.slice(keptAfter + 1)), "it makes a difference");
      const alone = generate(model, tokens, 9);
      assertAllNear(alone, expected);
      const { truncate, copyPrefix, saveState } = model.capabilities;
      assert.deepEqual([truncate, copyPrefix, saveState], [false, false, false]);

      // The slot is reused. The last chunk of the prompt has one token, which must not count as a generated token.
      model.kv.release(0);
      assert.deepEqual(generate(model, tokens, 9, 0), alone);
      assertAllNear(
        generate(model, otherText.subarray(0, 14), 9, 1, 8),
        await reference(written, otherText.subarray(0, 14), 9, { keptAfter }),
      );
    });
  }

  it("skips the first pass only for rows with kept weights", async (test) => {
    const { spec } = await prepare({ layerwise: true, depth: 2, spread: 4 }, 1);
    const model = await load(test, spec, { threads: 3 });
    const short = generate(model, text.subarray(0, 20), 9);
    const long = generate(model, otherText.subarray(0, 78), 72, 1);
    model.kv.release(0);
    model.kv.release(1);
    generate(model, text.subarray(0, 14), 9);
    step(model, [{ slot: 1, from: 0, to: 5, tokens: otherText, logitsCount: 0 }]);
    // In each step, the first row uses adapter weights that were kept from an earlier token, and the second row belongs to
    // another sequence. In the first step, the second row is a prompt that spans two passes.
    for (let i = 0; i < 6; i++) {
      const from = i === 0 ? 5 : 71 + i;
      const [own, other] = step(model, [
        { slot: 0, from: 14 + i, to: 15 + i },
        { slot: 1, from, to: 72 + i, tokens: otherText },
      ]);
      assert.deepEqual(own![0], short[6 + i]);
      assert.deepEqual(other![0], long[i]);
    }
  });

  it("breaks ties between adapters by their order", async (test) => {
    const { spec } = await prepare();
    const [layer] = spec.classifier;
    assert.ok(layer);
    const always = (weights: readonly number[], topAdapters: number | null): MixtureSpec => {
      const weight = new Float32Array(layer.weight.length);
      const classifier = [{ ...layer, weight, bias: Float32Array.from(weights) }];
      return { ...spec, classifier, temperature: null, topAdapters };
    };
    const chosen = generate(await load(test, always([0.5, 1, 1], 1)), text.subarray(0, 12), 9);
    const second = generate(await load(test, always([0, 1, 0], null)), text.subarray(0, 12), 9);
    const third = generate(await load(test, always([0, 0, 1], null)), text.subarray(0, 12), 9);
    assert.deepEqual(chosen, second);
    assert.notDeepEqual(chosen, third);
  });

  it("pools the hidden states of the second pass", async (test) => {
    const { spec } = await prepare({ layerwise: true });
    const pooled = (model: WasmModel) => {
      const batch = new Batch(1, 70);
      assert.ok(model.kv.reserve(0, 70));
      batch.wantPooled[batch.addRow(0, text, 0, 70, 0, 0)] = 1;
      return model.step(batch).pooled.slice(0, model.capabilities.pooledLength);
    };
    const one = await load(test, { ...spec, firstPassWeight: 1 });
    const base = await load(test, null);
    const silent = await load(test, { ...spec, globalWeight: 0 });
    assertNear(pooled(silent), pooled(base), 1e-6);
    const range = (values: Float32Array) => Math.max(...values) - Math.min(...values);
    const difference = pooled(one).map((value, i) => value - pooled(base)[i]!);
    assert.ok(range(difference) > 0.05 * range(pooled(base)));
  });

  it("is named in the layout of the KV cache, which takes twice the memory", async (test) => {
    const { spec } = await prepare();
    const plain = await load(test, null);
    const mixed = await load(test, spec);
    assert.equal(mixed.card.kvCacheBytes, 2 * plain.card.kvCacheBytes);
    const other = await load(test, { ...spec, temperature: 2 });
    const layouts = [plain, mixed, other].map(({ kv }) => kv.layout);
    assert.equal(new Set(layouts).size, 3);
    assert.equal((await load(test, spec)).kv.layout, mixed.kv.layout);
    const budget = { kvBudget: { bytes: 2 ** 20 } };
    const blocks = (await load(test, null, budget)).capacity.kvBlocks;
    assert.equal((await load(test, spec, budget)).capacity.kvBlocks, blocks / 2);
  });

  it("is rejected if it does not fit the model", async (test) => {
    const { spec } = await prepare({ depth: 2, layerwise: true });
    const [first, last] = spec.classifier;
    assert.ok(first && last);
    const refused = async (mixture: MixtureSpec, message: RegExp, code = "invalid_lora_adapter") => {
      await assert.rejects(load(test, mixture), (error: ServerError) => {
        assert.equal(error.code, code, error.message);
        assert.match(error.message, message);
        return true;
      });
    };
    await refused({ ...spec, classifier: [last] }, /layer 0 takes 24 numbers; expected 64/);
    await refused({ ...spec, classifier: [first] }, /it gives 24 weights|whose layer is/);
    await refused({ ...spec, classifier: [{ ...first, bias: new Float32Array(3) }, last] }, /layer 0 does not hold/);
    await refused({ ...spec, layerwise: false }, /weights; expected the same number for each of 3 adapters/);
    await refused({ ...spec, layers: {} }, /adapters change "blk\.0\..*", whose layer is undefined/);
    const weight = last.weight.slice().fill(Number.NaN, 3, 4);
    await refused({ ...spec, classifier: [first, { ...last, weight }] }, /layer 1 holds a NaN/);
    await refused(
      { ...spec, adapters: [modelPath, ...spec.adapters.slice(1)] },
      /unexpected tensors/,
      "lora_device_load_failed",
    );
    await assert.rejects(load(test, spec, { adapters: limits }), { code: "config_invalid" });
  });

  it("excludes other adapters", async (test) => {
    const { spec } = await prepare();
    const model = await load(test, spec);
    assert.equal(model.capabilities.adaptersPerStep, 0);
    assert.equal(model.adapters ?? null, null);
    const batch = new Batch(1, 1);
    assert.ok(model.kv.reserve(0, 1));
    batch.addRow(0, text, 0, 1, 1, 1);
    assert.throws(() => model.step(batch), { code: "model_failed" });
  });
});
