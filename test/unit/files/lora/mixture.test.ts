// X-LoRA mixture as an engine gets it: the classifier's weights, and the adapter and layer of each of its outputs.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { ggufNameOf } from "../../../fixtures/lora/lora.ts";
import { edit, prepare, preparedAlone, tensorsOf, width, write } from "./mixture-rig.ts";

describe("a prepared X-LoRA", () => {
  it("has the classifier's layers in order, whatever numbers stand between them", async () => {
    for (const depth of [1, 2, 3] as const) {
      for (const rectifies of [true, false]) {
        const xlora = await write({ depth, size: 5, rectifies, bias: depth !== 2 });
        const spec = await prepare(xlora);
        const tensors = tensorsOf(xlora);
        const inner = rectifies ? ["inner.0", "inner.3"] : ["inner.0", "inner.1"];
        const names = [...inner.slice(0, depth - 1), "last"];
        assert.deepEqual(
          spec.classifier,
          names.map((name, i) => ({
            rows: i === depth - 1 ? 3 : 5,
            columns: i === 0 ? width : 5,
            weight: tensors.get(`${name}.weight`)?.values,
            bias: tensors.get(`${name}.bias`)?.values ?? null,
          })),
        );
        assert.equal(spec.rectifies, rectifies);
      }
    }
  });

  it("has the weight settings of the config", async () => {
    const spec = await prepare(
      await write({
        temperature: 0.5,
        topK: 2,
        softmaxTopK: true,
        globalWeight: 3,
        firstPassWeight: 0.25,
      }),
      { keptAfter: 7 },
    );
    const { adapters: _, classifier: __, layers: ___, ...rest } = spec;
    assert.deepEqual(rest, {
      rectifies: true,
      layerwise: false,
      temperature: 0.5,
      topAdapters: 2,
      normalisesTop: true,
      globalWeight: 3,
      firstPassWeight: 0.25,
      keptAfter: 7,
    });
    assert.equal((await prepare(await write({ softmax: false, temperature: 0.5 }))).temperature, null);
  });

  it("uses the defaults of the library that writes the config", async () => {
    const xlora = await write({ depth: 2, size: 2048 });
    edit(xlora, ({ hidden_size, adapters }) => ({ hidden_size, adapters, xlora_depth: 2 }));
    const { adapters: _, classifier, layers: __, ...rest } = await prepare(xlora);
    assert.equal(classifier[0]?.rows, 2048);
    assert.ok(classifier.every(({ bias }) => bias !== null));
    assert.deepEqual(rest, {
      rectifies: false,
      layerwise: false,
      temperature: 1,
      topAdapters: null,
      normalisesTop: false,
      globalWeight: 1,
      firstPassWeight: 0,
      keptAfter: null,
    });
  });

  it("has the adapters in the order of the config's list or object, each prepared as if alone", async () => {
    const xlora = await write();
    const alone = await Promise.all(xlora.adapters.map((name) => preparedAlone(xlora, name)));
    assert.equal(new Set(alone).size, 3);
    assert.deepEqual((await prepare(xlora)).adapters, alone);
    edit(xlora, (config) => ({ ...config, adapters: { adapter_3: "/elsewhere", adapter_1: "", adapter_2: null } }));
    assert.deepEqual((await prepare(xlora)).adapters, [alone[2], alone[0], alone[1]]);
  });

  it("finds the adapter `default` beside the classifier, and others in folders of folders", async () => {
    const xlora = await write({ adapters: 2, order: { adapters: ["default", "more/second"] } });
    await cp(join(xlora.folder, "adapter_1"), xlora.folder, { recursive: true });
    await cp(join(xlora.folder, "adapter_2"), join(xlora.folder, "more", "second"), { recursive: true });
    const { adapters } = await prepare(xlora, { orderFile: xlora.orderFile });
    assert.deepEqual(adapters, [await preparedAlone(xlora, "adapter_1"), await preparedAlone(xlora, "adapter_2")]);
  });

  it("without an order file, orders the changed layers as the model does", async () => {
    const targets = [["down_proj", "k_proj", "gate_proj"], ["q_proj", "o_proj", "v_proj", "up_proj"], ["lm_head"]];
    const xlora = await write({
      layerwise: true,
      adapterOptions: (i) => ({ rank: 1, targets: targets[i] ?? [], ...(i === 0 && { layers: [2, 10] }) }),
    });
    const parts = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    const ofOne = new Set(["attn_k", "ffn_gate", "ffn_down"]);
    const expected = Array.from({ length: 11 }, (_, layer) =>
      parts
        .filter((part) => !ofOne.has(part) || layer === 2 || layer === 10)
        .map((part) => `blk.${layer}.${part}.weight`),
    );
    const { layers } = await prepare(xlora);
    assert.deepEqual(layers, Object.fromEntries([...expected.flat(), "output.weight"].map((name, i) => [name, i])));
  });

  it("has layer 0 for all if the classifier does not distinguish layers, whatever the order file says", async () => {
    const xlora = await write({ layerwise: false });
    const { layers } = await prepare(xlora, { orderFile: xlora.orderFile });
    assert.equal(Object.keys(layers).length, 22);
    assert.ok(Object.values(layers).every((layer) => layer === 0));
  });

  it("has each adapter and each layer at the position that the order file states", async () => {
    const xlora = await write({ layerwise: true });
    const alone = new Map<string, string>();
    for (const name of xlora.adapters) alone.set(name, await preparedAlone(xlora, name));
    const permutation = (values: readonly string[]) =>
      fc.shuffledSubarray([...values], { minLength: values.length, maxLength: values.length });
    const prefix = fc.constantFrom("", "base_model.model.");
    const property = fc.asyncProperty(
      permutation(xlora.adapters),
      permutation(xlora.modules),
      prefix,
      async (order, modules, before) => {
        const layers = Object.fromEntries(modules.map((module, layer) => [`${before}${module}`, layer]));
        writeFileSync(xlora.orderFile, JSON.stringify({ order, layers, base_model_id: "a/model" }));
        const spec = await prepare(xlora, { orderFile: xlora.orderFile });
        assert.deepEqual(
          spec.adapters,
          order.map((name) => alone.get(name)),
        );
        assert.deepEqual(spec.layers, Object.fromEntries(modules.map((module, layer) => [ggufNameOf(module), layer])));
      },
    );
    await fc.assert(property, { numRuns: 10 });
  });

  it("uses an order file that is incomplete, and the default order for the rest", async () => {
    const xlora = await write({ layerwise: true });
    const { adapters, layers } = await prepare(xlora);
    writeFileSync(xlora.orderFile, JSON.stringify({ order: xlora.adapters.toReversed() }));
    const other = await prepare(xlora, { orderFile: xlora.orderFile });
    assert.deepEqual([other.adapters, other.layers], [adapters.toReversed(), layers]);
  });
});
