// Unusable adapters: each is rejected with an error that names the cause, and no file is left behind.
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { prepareAdapter } from "../../../../engines/files/lora/prepare.ts";
import type { ErrorCode } from "../../../../runtime/errors.ts";
import type { WeightType } from "../../../fixtures/gguf/weight-types.ts";
import {
  type HandmadeAdapter,
  optionsFor,
  queryModule,
  queryPair,
  refusal,
  temporaryFolder,
  tensor,
  writeHandmade,
  writeSmallModel,
} from "../../../fixtures/lora/lora-prepared.ts";
import { f32, type Tensor, text, writeGguf } from "../../../fixtures/models/tiny-gguf.ts";

const folder = temporaryFolder();
const modelPath = join(folder, "model.gguf");
const prepared = join(folder, "prepared");
const options = { ...optionsFor(modelPath, prepared), limits: { maxRank: 4, maxBytes: 600 } };
before(() => writeSmallModel(modelPath));

interface Refusal {
  readonly what: string;
  readonly code?: ErrorCode;
  /** Pattern that the error message must match. */
  readonly names: RegExp;
}

const [a, b] = queryPair() as [Tensor, Tensor];
const named = (name: string): readonly Tensor[] => [a, b, tensor(name, [1, 16], 1)];
const inModule = (module: string, rows: number, columns: number): readonly Tensor[] => [
  tensor(`base_model.model.${module}.lora_A.weight`, [1, columns], 1),
  tensor(`base_model.model.${module}.lora_B.weight`, [rows, 1], 1),
];

const configs: readonly (Refusal & { readonly config: HandmadeAdapter["config"] })[] = [
  { what: "another kind of adapter", config: { peft_type: "LOHA" }, names: /peft_type.*LORA/ },
  { what: "no kind at all", config: { peft_type: undefined }, names: /peft_type/ },
  { what: "DoRA", config: { use_dora: true }, names: /use_dora: DoRA/ },
  { what: "biases", config: { bias: "lora_only" }, names: /bias/ },
  { what: "biases of LoRA's own", config: { lora_bias: true }, names: /lora_bias/ },
  { what: "transposed weights", config: { fan_in_fan_out: true }, names: /fan_in_fan_out/ },
  { what: "whole modules", config: { modules_to_save: ["lm_head"] }, names: /modules_to_save/ },
  { what: "repeated layers", config: { layer_replication: [[0, 1]] }, names: /layer_replication/ },
  { what: "parameters of experts", config: { target_parameters: ["experts.w1"] }, names: /target_parameters/ },
  { what: "new tokens", config: { trainable_token_indices: { embed_tokens: [1] } }, names: /trainable_token_indices/ },
  { what: "activation by tokens", config: { alora_invocation_tokens: [1, 2] }, names: /aLoRA/ },
  { what: "PiSSA", config: { init_lora_weights: "pissa_niter_16" }, names: /pissa_niter_16.*plain LoRA/ },
  { what: "OLoRA", config: { init_lora_weights: "olora" }, names: /olora/ },
  { what: "a rank of 0", config: { r: 0 }, names: /has 0 for r;.*positive integer/ },
  { what: "a rank in words", config: { r: "8" }, names: /has "8" for r;/ },
  { what: "no alpha", config: { lora_alpha: null }, names: /lora_alpha/ },
  { what: "rank stabilisation in words", config: { use_rslora: "yes" }, names: /use_rslora/ },
  { what: "a rank pattern that is a list", config: { rank_pattern: [1] }, names: /rank_pattern/ },
  { what: "a rank of 1.5 in a pattern", config: { rank_pattern: { q_proj: 1.5 } }, names: /rank_pattern/ },
  { what: "another rank than its tensors have", config: { r: 2 }, names: /\[1, 16\].*\[2, 16\].*attn_q/ },
  { what: "another rank by pattern", config: { rank_pattern: { "self_attn.q_proj": 3 } }, names: /\[3, 16\]/ },
  {
    what: "a pattern that is no expression",
    config: { alpha_pattern: { "q(proj": 2 } },
    names: /alpha_pattern.*q\(proj/,
  },
];

const tensors: readonly (Refusal & { readonly tensors: readonly Tensor[]; readonly config?: object })[] = [
  { what: "no tensors", tensors: [], names: /no tensors/ },
  { what: "one of a pair", tensors: [a], names: /lora_B is missing/ },
  { what: "the other of a pair", tensors: [b], names: /lora_A is missing/ },
  { what: "a DoRA magnitude", tensors: named(`${queryModule}.lora_magnitude_vector`), names: /magnitude of DoRA/ },
  { what: "embeddings", tensors: named("base_model.model.model.embed_tokens.lora_embedding_A"), names: /embeddings/ },
  { what: "a bias", tensors: named(`${queryModule}.lora_B.bias`), names: /a bias/ },
  { what: "a whole module", tensors: named("base_model.model.lm_head.modules_to_save.weight"), names: /whole module/ },
  { what: "what is none of LoRA", tensors: named("base_model.model.lm_head.weight"), names: /not a LoRA tensor/ },
  {
    what: "a name that is PEFT's twice",
    tensors: named(`${queryModule}.lora_A.default.weight`),
    names: /lora_A.*twice/,
  },
  {
    what: "a layer there is not",
    tensors: inModule("model.layers.1.self_attn.q_proj", 16, 16),
    names: /blk\.1\.attn_q\.weight/,
  },
  { what: "a module there is not", tensors: inModule("model.layers.0.self_attn.qkv_proj", 16, 16), names: /attn_qkv/ },
  {
    what: "another part of the model",
    tensors: inModule("vision_tower.layers.0.self_attn.q_proj", 16, 16),
    names: /vision_tower/,
  },
  { what: "experts", tensors: inModule("model.layers.0.mlp.experts.3.up_proj", 16, 16), names: /experts\.3/ },
  {
    what: "two modules that are one",
    tensors: [...queryPair(), ...inModule("layers.0.self_attn.q_proj", 16, 16)],
    names: /two of its modules/,
  },
  { what: "a matrix of other columns", tensors: [tensor(a.name, [1, 8], 1), b], names: /\[1, 8\].*\[1, 16\]/ },
  { what: "a matrix of other rows", tensors: [a, tensor(b.name, [8, 1], 1)], names: /\[8, 1\].*\[16, 1\]/ },
  { what: "ranks that differ", tensors: [a, tensor(b.name, [16, 2], 1)], names: /\[16, 2\].*\[16, 1\]/ },
  { what: "matrices the other way round", tensors: [tensor(a.name, [16, 1], 1), b], names: /\[16, 1\].*\[1, 16\]/ },
  { what: "a vector", tensors: [{ ...a, shape: [16] }, b], names: /\[16\]/ },
  {
    what: "a NaN",
    tensors: [tensor(a.name, [1, 16], [...Array(15).fill(1), Number.NaN]), b],
    names: /q_proj\.lora_A.*NaN for number 15/,
  },
  { what: "an infinity", tensors: [a, tensor(b.name, [16, 1], Number.NEGATIVE_INFINITY)], names: /lora_B.*-Infinity/ },
  {
    what: "a product without bounds",
    tensors: [tensor(a.name, [1, 16], 1e6), tensor(b.name, [16, 1], 1e6)],
    names: /too large/,
  },
  { what: "a scale without bounds", tensors: [a, b], config: { lora_alpha: 1e300 }, names: /too large/ },
  {
    what: "a rank above the limit",
    tensors: queryPair(5),
    config: { r: 5 },
    code: "lora_rank_limit_exceeded",
    names: /rank 5 for blk\.0\.attn_q\.weight; at most 4/,
  },
  {
    what: "more bytes than the limit",
    tensors: [...queryPair(4), ...inModule("model.layers.0.self_attn.k_proj", 8, 16).map((one) => widened(one, 4))],
    config: { r: 4, lora_alpha: 4 },
    code: "lora_byte_limit_exceeded",
    // The adapter's size is 2 bytes * rank 4 * (16 + 16 + 8 + 16).
    names: /448 bytes; at most 447/,
  },
];

/** Returns the same tensor with another rank. */
function widened({ name, shape: [first, second] }: Tensor, rank: number): Tensor {
  return name.includes("lora_A") ? tensor(name, [rank, second!], 1) : tensor(name, [first!, rank], 1);
}

describe("a PEFT adapter that is refused", () => {
  for (const { what, config, code = "invalid_lora_adapter", names } of configs) {
    it(`is rejected for ${what}`, async () => {
      const source = await writeHandmade(join(folder, "config"), { tensors: [a, b], config: config ?? {} });
      await checkRefusal(source, code, names);
    });
  }
  for (const { what, tensors: own, config = {}, code = "invalid_lora_adapter", names } of tensors) {
    it(`is rejected for ${what}`, async () => {
      const source = await writeHandmade(join(folder, "tensors"), { tensors: own, config: { ...config } });
      await checkRefusal(source, code, names, code === "lora_byte_limit_exceeded" ? 447 : 600);
    });
  }

  it("may have an architecture whose order of rows is unknown", async () => {
    const path = join(folder, "bloom.gguf");
    const matrix = { name: "blk.0.attn_q.weight", shape: [16, 16], values: new Float32Array(256) };
    await writeGguf(path, { fields: { "general.architecture": text("bloom") }, tensors: [matrix], weights: "F32" });
    const source = await writeHandmade(join(folder, "bloom"), { tensors: [a, b] });
    const { code, message } = await refusal({ ...options, modelPath: path, source });
    assert.equal(code, "invalid_lora_adapter");
    assert.match(message, /"bloom".*GGUF adapter/);
  });
});

describe("a PEFT adapter that is accepted", () => {
  it("may have settings that have no effect", async () => {
    const config = {
      ...{ base_model_name_or_path: "x", lora_dropout: 0.1, target_modules: ["q_proj"], unheard_of: { a: [1] } },
      ...{ use_dora: false, modules_to_save: null, rank_pattern: null, init_lora_weights: "gaussian", bias: "none" },
    };
    const source = await writeHandmade(join(folder, "taken"), { tensors: [a, b], config });
    assert.equal((await prepareAdapter({ ...options, source })).rank, 1);
  });

  it("may have names with prefixes from training inside a larger model", async () => {
    for (const prefix of ["model", "language_model.model", "model.language_model"]) {
      const own = inModule(`${prefix}.layers.0.self_attn.q_proj`, 16, 16);
      const source = await writeHandmade(join(folder, "prefixed"), { tensors: own });
      assert.equal((await prepareAdapter({ ...options, source })).bytes, 64);
    }
  });

  it("may specify ranks by expressions, of which the first match counts", async () => {
    const two = [...queryPair(2), ...inModule("model.layers.0.self_attn.k_proj", 8, 16).map((one) => widened(one, 3))];
    const rankPattern = { "layers\\.(0|1)\\.self_attn\\.q_.*": 2, q_proj: 4, "^model.*k_proj": 3 };
    const source = await writeHandmade(join(folder, "patterns"), {
      tensors: two,
      config: { rank_pattern: rankPattern },
    });
    assert.equal((await prepareAdapter({ ...options, source })).rank, 3);
  });
});

describe("a GGUF adapter that is refused", () => {
  const fields = {
    "general.architecture": text("llama"),
    "general.type": text("adapter"),
    "adapter.type": text("lora"),
    "adapter.lora.alpha": f32(1),
  };
  const pair = [
    { name: "blk.0.attn_q.weight.lora_a", shape: [16, 2], values: new Float32Array(32).fill(1) },
    { name: "blk.0.attn_q.weight.lora_b", shape: [2, 16], values: new Float32Array(32).fill(1) },
  ];
  const wide = pair.map(({ name }) => ({ name, shape: [32, 2], values: new Float32Array(64) }));
  const quantisable = [
    { name: "blk.0.ffn_down.weight.lora_a", shape: [32, 32], values: new Float32Array(1024) },
    { name: "blk.0.ffn_down.weight.lora_b", shape: [32, 16], values: new Float32Array(512) },
  ];
  const cases: readonly (Refusal & { fields?: object; tensors?: readonly Tensor[]; weights?: WeightType })[] = [
    { what: "a model", fields: { "general.type": text("model") }, names: /general\.type is "model".*"adapter"/ },
    { what: "a control vector", fields: { "adapter.type": text("control_vector") }, names: /adapter\.type/ },
    { what: "another architecture", fields: { "general.architecture": text("qwen2") }, names: /"qwen2".*"llama"/ },
    { what: "an alpha in words", fields: { "adapter.lora.alpha": text("1") }, names: /adapter\.lora\.alpha/ },
    { what: "activation by tokens", fields: { "adapter.alora.invocation_tokens": text("") }, names: /aLoRA/ },
    { what: "one of a pair", tensors: [pair[0]!], names: /lora_b is missing/ },
    {
      what: "a norm",
      tensors: [...pair, { name: "output_norm.weight", shape: [16], values: new Float32Array(16) }],
      names: /output_norm/,
    },
    { what: "token embeddings", tensors: renamed("token_embd.weight"), names: /token_embd.*only layers/ },
    { what: "a matrix there is not", tensors: renamed("blk.1.attn_q.weight"), names: /blk\.1\.attn_q/ },
    { what: "a vector of the model", tensors: renamed("blk.0.attn_norm.weight"), names: /attn_norm.*not a matrix/ },
    { what: "another shape", tensors: wide, names: /32 x 2.*16 x 2/ },
    { what: "quantised tensors", tensors: quantisable, weights: "Q8_0", names: /ffn_down.*Q8_0.*F32, F16 or BF16/ },
    { what: "a tensor twice", tensors: [...pair, pair[0]!], names: /twice/ },
    {
      what: "a rank above the limit",
      tensors: renamed("blk.0.attn_q.weight", 5),
      code: "lora_rank_limit_exceeded",
      names: /rank 5/,
    },
  ];

  function renamed(name: string, rank = 2): Tensor[] {
    const values = new Float32Array(16 * rank).fill(1);
    return [
      { name: `${name}.lora_a`, shape: [16, rank], values },
      { name: `${name}.lora_b`, shape: [rank, 16], values },
    ];
  }

  for (const { what, fields: own = {}, tensors: ownTensors = pair, weights = "F32", ...expected } of cases) {
    it(`is rejected for ${what}`, async () => {
      const source = join(folder, "refused.gguf");
      await writeGguf(source, { fields: { ...fields, ...own }, tensors: ownTensors, weights });
      await checkRefusal(source, expected.code ?? "invalid_lora_adapter", expected.names);
    });
  }

  it("may be no GGUF file at all", async () => {
    const source = join(folder, "some.txt");
    for (const content of ["", "GG", "PK\u0003\u0004 and so on"]) {
      await writeFile(source, content);
      await checkRefusal(source, "invalid_lora_adapter", /not in GGUF format/);
    }
  });

  it("counts alpha 0 as no scale at all", async () => {
    const source = join(folder, "plain.gguf");
    const generations = [];
    for (const alpha of [0, 2, 1]) {
      await writeGguf(source, {
        fields: { ...fields, "adapter.lora.alpha": f32(alpha) },
        tensors: pair,
        weights: "F32",
      });
      generations.push((await prepareAdapter({ ...options, source })).generation);
    }
    assert.equal(generations[0], generations[1]);
    assert.notEqual(generations[0], generations[2]);
  });
});

async function checkRefusal(source: string, code: ErrorCode, names: RegExp, maxBytes = 600): Promise<void> {
  const own = { ...options, source, limits: { ...options.limits, maxBytes }, folder: join(folder, "refused") };
  const { code: found, message } = await refusal(own);
  assert.equal(found, code, message);
  assert.match(message, names);
  assert.match(message, /^(adapter "|the adapter |what the adapter )/);
  assert.deepEqual(existsSync(own.folder) ? readdirSync(own.folder) : [], []);
}
