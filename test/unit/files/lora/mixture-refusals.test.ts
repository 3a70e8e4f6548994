// Rejected X-LoRA folders, order files and limits: each error message states the cause.
import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { MixtureOptions } from "../../../../engines/files/lora/mixture/mixture.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { encodeSafetensors } from "../../../fixtures/lora/lora-safetensors.ts";
import type { WrittenXlora } from "../../../fixtures/lora/xlora.ts";
import type { Tensor } from "../../../fixtures/models/tiny-gguf.ts";
import { edit, limits, prepare, root, tensorsOf, write } from "./mixture-rig.ts";

describe("an X-LoRA is rejected", () => {
  const configs: readonly (readonly [name: string, changes: Record<string, unknown>, said: RegExp])[] = [
    ["made for a model of another width", { hidden_size: 32 }, /hidden_size 32; the model has 16/],
    ["without adapters", { adapters: [] }, /"adapters"/],
    ["with more adapters than any has", { adapters: Array.from({ length: 257 }, (_, i) => `${i}`) }, /"adapters"/],
    ["whose adapters are no names", { adapters: [1] }, /"adapters"/],
    [
      "whose adapter is named twice",
      { adapters: ["adapter_1", "adapter_1", "adapter_2"] },
      /"adapter_1" is named twice/,
    ],
    ["whose adapter is not there", { adapters: ["adapter_1", "adapter_2", "nobody"] }, /nobody": there is nothing/],
    [
      "whose adapter is named like the way out",
      { adapters: ["a/../../b", "b", "c"] },
      /not the name of a folder in it/,
    ],
    ["whose adapter is named like a path", { adapters: ["/etc", "b", "c"] }, /not the name of a folder in it/],
    ["with more of the best adapters than it has", { top_k_lora: 4 }, /top_k_lora is 4, but it has 3 adapters/],
    ["with none of the best adapters", { top_k_lora: 0 }, /"top_k_lora"/],
    ["with a temperature of 0", { softmax_temperature: 0 }, /"softmax_temperature"/],
    ["whose classifier has another depth", { xlora_depth: 2 }, /has 1 layers; expected xlora_depth 2/],
    ["whose classifier has a bias it should not", { use_bias: false }, /has a tensor "last.bias"/],
    ["whose classifier is for other adapters", { adapters: ["adapter_1", "adapter_2"] }, /"last.weight" is \[3, 16\]/],
    ["whose switch is no switch", { layerwise_scalings: "no" }, /"layerwise_scalings"/],
  ];
  for (const [name, changes, said] of configs) {
    it(name, async () => {
      const xlora = await write();
      edit(xlora, (config) => ({ ...config, ...changes }));
      assert.match((await refusal(xlora)).message, said);
    });
  }

  it("without its files, and with a config that is not JSON", async () => {
    for (const file of ["xlora_config.json", "xlora_classifier.safetensors", "adapter_2/adapter_config.json"]) {
      const xlora = await write();
      rmSync(join(xlora.folder, file));
      const error = await refusal(xlora);
      assert.equal(error.code, "adapter_file_not_found");
      assert.match(error.message, new RegExp(`no ${file.replace(/.*\//, "")}`));
    }
    const xlora = await write();
    writeFileSync(join(xlora.folder, "xlora_config.json"), "{");
    assert.match((await refusal(xlora)).message, /xlora_config.json is not JSON/);
  });

  it("with a classifier of other shapes, other tensors, or cut off", async () => {
    const wrong: readonly (readonly [(tensors: Tensor[]) => Tensor[], RegExp])[] = [
      [(all) => all.filter(({ name }) => name !== "last.weight"), /no tensor "last.weight"/],
      [(all) => all.filter(({ name }) => name !== "last.bias"), /no tensor "last.bias", but use_bias is true/],
      [(all) => all.filter(({ name }) => !name.startsWith("inner.0")), /has 1 layers/],
      [(all) => all.map((one) => ({ ...one, shape: one.shape.toReversed() })), /"inner.0.weight" is \[16, 5\]/],
      [(all) => [...all, { name: "scale", shape: [1], values: new Float32Array(1) }], /tensor "scale"/],
      [(all) => all.map((one) => ({ ...one, values: one.values.fill(Number.NaN) })), /NaN/],
    ];
    for (const [change, said] of wrong) {
      const xlora = await write({ depth: 2, size: 5 });
      const tensors = change([...tensorsOf(xlora).values()]);
      writeFileSync(join(xlora.folder, "xlora_classifier.safetensors"), encodeSafetensors(tensors, "F32"));
      const error = await refusal(xlora);
      assert.equal(error.code, "invalid_lora_adapter");
      assert.match(error.message, said);
    }
    const xlora = await write();
    const path = join(xlora.folder, "xlora_classifier.safetensors");
    writeFileSync(path, readFileSync(path).subarray(0, -1));
    assert.match((await refusal(xlora)).message, /xlora_classifier.safetensors is damaged or cut off/);
  });

  it("whose classifier has another number of layers, unless an order file assigns them", async () => {
    const xlora = await write({ layerwise: true });
    const tensors = [...tensorsOf(xlora).values()].map((one): Tensor => {
      const values = new Float32Array(2 * one.values.length);
      return { ...one, shape: [2 * one.shape[0]!, ...one.shape.slice(1)], values };
    });
    writeFileSync(join(xlora.folder, "xlora_classifier.safetensors"), encodeSafetensors(tensors, "F32"));
    assert.match((await refusal(xlora)).message, /44 layers, but its adapters change 22 matrices/);
    assert.equal((await prepare(xlora, { orderFile: xlora.orderFile })).layers["blk.10.ffn_down.weight"], 21);
  });

  it("whose number of outputs is not a multiple of its adapters", async () => {
    const xlora = await write({ adapters: 3, layerwise: true });
    edit(xlora, (config) => ({ ...config, adapters: ["adapter_1", "adapter_2", "adapter_3", "adapter_4"] }));
    await mkdir(join(xlora.folder, "adapter_4"));
    assert.match((await refusal(xlora)).message, /66 outputs, which is not a multiple of its 4 adapters/);
  });

  it("beyond the limits", async () => {
    const xlora = await write();
    const codes = {
      lora_rank_limit_exceeded: { maxRank: 0 },
      lora_byte_limit_exceeded: { maxBytes: 4000 },
    };
    for (const [code, changes] of Object.entries(codes)) {
      assert.equal((await refusal(xlora, { limits: { ...limits, ...changes } })).code, code);
    }
  });

  const orders: readonly (readonly [name: string, change: (order: Order) => unknown, said: RegExp])[] = [
    ["is no object", () => [], /its content/],
    ["names no adapter", (order) => ({ ...order, order: [] }), /"order"/],
    ["has a layer below 0", (order) => withLayer(order, -1), /"layers/],
    [
      "has a layer that the classifier has not",
      (order) => withLayer(order, 22),
      /layer 22; the classifier has 0 to 21/,
    ],
    ["has two modules with one layer", (order) => withLayer(order, 1), /layer 1, which another module has/],
    [
      "lacks a module",
      ({ layers: { [firstModule]: _, ...layers }, ...rest }) => ({ ...rest, layers }),
      /blk\.0\.attn_q\.weight/,
    ],
    [
      "is for another model",
      (order) => ({ ...order, layers: { "model.layers.40.self_attn.q_proj": 0 } }),
      /blk\.40\.attn_q/,
    ],
    [
      "has what is no module",
      (order) => ({ ...order, layers: { "model.layers.0.norm": 0 } }),
      /is not a matrix that adapters can change/,
    ],
  ];
  for (const [name, change, said] of orders) {
    it(`with an order file that ${name}`, async () => {
      const xlora = await write({ layerwise: true });
      const order = JSON.parse(readFileSync(xlora.orderFile, "utf8")) as Order;
      writeFileSync(xlora.orderFile, JSON.stringify(change(order)));
      const error = await refusal(xlora, { orderFile: xlora.orderFile });
      assert.equal(error.code, "config_invalid");
      assert.ok(error.message.includes(xlora.orderFile));
      assert.match(error.message, said);
    });
  }

  it("with an order file that is missing or not JSON", async () => {
    const xlora = await write();
    writeFileSync(xlora.orderFile, "order");
    for (const orderFile of [xlora.orderFile, join(root, "nothing.json")]) {
      assert.equal((await refusal(xlora, { orderFile })).code, "config_invalid");
    }
  });
});

interface Order {
  readonly order: readonly string[];
  readonly layers: Readonly<Record<string, number>>;
}

const firstModule = "model.layers.0.self_attn.q_proj";

function withLayer(order: Order, layer: number): Order {
  return { ...order, layers: { ...order.layers, [firstModule]: layer } };
}

async function refusal(xlora: WrittenXlora, changes: Partial<MixtureOptions> = {}): Promise<ServerError> {
  const outcome = await prepare(xlora, changes).catch((error: unknown) => error);
  assert.ok(outcome instanceof ServerError, `expected a refusal, got ${outcome}`);
  return outcome;
}
