// Checkpoints converted to GGUF: what is rejected with which error, and config fields in their various forms.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { architectures } from "../../../../engines/files/checkpoint/architectures/registry.ts";
import {
  type Checkpoint,
  type CheckpointOptions,
  openCheckpoint,
} from "../../../../engines/files/checkpoint/checkpoint.ts";
import type { JsonObject } from "../../../../engines/files/checkpoint/config.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { colbertCase, writeColbert } from "../../../fixtures/checkpoints/colbert/colbert-model.ts";
import { inTemporaryFolder } from "../gguf/gguf-bytes.ts";
import { caseContent, floats, type StoredTensors, writeFolder } from "./stored-checkpoint.ts";

interface Changes extends CheckpointOptions {
  readonly config?: JsonObject;
  /** Names of config.json fields to remove. */
  readonly without?: readonly string[];
  readonly tensors?: (tensors: StoredTensors) => StoredTensors;
  readonly files?: Readonly<Record<string, unknown>>;
}

/** Opens the checkpoint of a case with some changes. */
async function opened(name: string, changes: Changes = {}): Promise<Checkpoint> {
  const content = caseContent(name);
  const config = { ...content.config, ...changes.config };
  for (const field of changes.without ?? []) delete config[field];
  return await inTemporaryFolder(async (folder) => {
    await writeFolder(folder, config, changes.tensors?.(content.tensors) ?? content.tensors);
    for (const [file, json] of Object.entries(changes.files ?? {}))
      await writeFile(join(folder, file), JSON.stringify(json));
    return await openCheckpoint(folder, changes);
  });
}

function value({ pairs, architecture }: Checkpoint, key: string): unknown {
  return (pairs.get(`${architecture}.${key}`) ?? pairs.get(key))?.value;
}

function refused(code: string, words: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof ServerError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, words);
    return true;
  };
}

describe("a checkpoint", () => {
  it("is plain data that can be sent to threads", async () => {
    const checkpoint = await opened("llama");
    assert.deepEqual(structuredClone(checkpoint), checkpoint);
    assert.equal(checkpoint.vocabSize, 288);
    assert.deepEqual(
      checkpoint.tensors.find(({ name }) => name === "blk.1.attn_k.bias"),
      {
        name: "blk.1.attn_k.bias",
        shape: [48],
        storedType: 0,
        isMatrix: false,
        rows: checkpoint.tensors.find(({ name }) => name === "blk.1.attn_k.bias")?.rows,
        from: checkpoint.tensors.find(({ name }) => name === "blk.1.attn_k.bias")?.from,
      },
    );
    for (const { shape, rows } of checkpoint.tensors) assert.equal(rows.columns, shape[0]);
  });

  it("has the rope fields of older and of newer configs", async () => {
    const old = { rope_theta: 5000, rope_scaling: { type: "linear", factor: 2 } };
    const newer = { rope_parameters: { rope_theta: 5000, rope_type: "linear", factor: 2 } };
    for (const config of [old, newer]) {
      const checkpoint = await opened("qwen2", {
        config,
        without: ["rope_parameters"].filter((name) => !(name in config)),
      });
      const keys = ["rope.freq_base", "rope.scaling.type", "rope.scaling.factor"];
      assert.deepEqual(
        keys.map((key) => value(checkpoint, key)),
        [5000, "linear", 2],
      );
    }
  });

  it("takes changes of the config, object by object", async () => {
    const overrides = { max_position_embeddings: 77, rope_parameters: { factor: 3 } };
    const checkpoint = await opened("qwen2", { overrides });
    assert.equal(value(checkpoint, "context_length"), 77);
    assert.equal(value(checkpoint, "rope.scaling.factor"), 3);
    assert.equal(value(checkpoint, "rope.scaling.type"), "linear");
  });

  it("takes the text part of a model of several parts", async () => {
    const { config, tensors } = caseContent("gemma3");
    const whole = {
      architectures: ["Gemma3ForConditionalGeneration"],
      text_config: { ...config, architectures: null },
    };
    const renamed = Object.fromEntries(
      Object.entries(tensors).map(([name, tensor]) => [name.replace(/^model\./, "language_model.model."), tensor]),
    );
    const vision = { "vision_tower.vision_model.embeddings.patch_embedding.weight": floats([2]) };
    await inTemporaryFolder(async (folder) => {
      await writeFolder(folder, whole, {
        ...renamed,
        ...vision,
        "multi_modal_projector.mm_soft_emb_norm.weight": floats([2]),
      });
      const checkpoint = await openCheckpoint(folder);
      assert.deepEqual(
        checkpoint.tensors,
        (await opened("gemma3")).tensors.map((tensor) => same(checkpoint, tensor.name)),
      );
    });
  });

  it("has the values of the official class where a nested config leaves fields out", async () => {
    const { tensors } = caseContent("gemma3");
    const nested = { hidden_size: 64, num_hidden_layers: 7, intermediate_size: 96, sliding_window: 16, head_dim: 24 };
    const text = { ...nested, query_pre_attn_scalar: 24, rope_scaling: { factor: 8, rope_type: "linear" } };
    const config = { architectures: ["Gemma3ForConditionalGeneration"], text_config: text };
    await inTemporaryFolder(async (folder) => {
      await writeFolder(folder, config, tensors);
      const checkpoint = await openCheckpoint(folder);
      const keys = ["attention.head_count", "attention.head_count_kv", "rope.freq_base", "rope.freq_base_swa"];
      assert.deepEqual(
        keys.map((key) => value(checkpoint, key)),
        [8, 4, 1_000_000, 10_000],
      );
      assert.equal(value(checkpoint, "rope.scaling.factor"), 8);
    });
  });

  it("has the trained length of Nomic Embed, whose configs name another", async () => {
    const config = {
      ...{ n_embd: 64, n_head: 4, n_inner: 96, n_layer: 3, n_positions: 8192, max_trained_positions: 2048 },
      ...{ activation_function: "swiglu", layer_norm_epsilon: 1e-12, rotary_emb_base: 1000, rotary_emb_fraction: 1.0 },
      ...{
        prenorm: false,
        causal: false,
        qkv_proj_bias: false,
        rotary_emb_interleaved: false,
        rotary_emb_scale_base: null,
      },
    };
    const without = ["hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers", "rope_parameters"];
    const checkpoint = await opened("nomic-bert", { config, without });
    const keys = ["context_length", "embedding_length", "block_count", "feed_forward_length", "rope.freq_base"];
    assert.deepEqual(
      keys.map((key) => value(checkpoint, key)),
      [2048, 64, 3, 96, 1000],
    );
    await assert.rejects(
      opened("nomic-bert", { config: { ...config, prenorm: true } }),
      refused("unsupported", /prenorm/),
    );
  });

  it("leaves out the copy of the embedding in a tied model", async () => {
    const tensors = (all: StoredTensors) => ({ ...all, "lm_head.weight": floats([288, 64]) });
    const tied = await opened("llama-3-rope", { tensors, config: { tie_word_embeddings: true } });
    assert.equal(same(tied, "output.weight"), undefined);
    assert.ok(same(await opened("llama-3-rope", { tensors, config: { tie_word_embeddings: false } }), "output.weight"));
  });

  it("is refused if it has modules that the engines do not compute", async () => {
    const dense = [{ type: "sentence_transformers.models.Dense", path: "2_Dense" }];
    const files = { "modules.json": [{ type: "sentence_transformers.models.CNN", path: "1" }] };
    await assert.rejects(opened("bert", { files }), refused("unsupported", /CNN/));
    await assert.rejects(
      opened("bert", { files: { "modules.json": dense } }),
      refused("model_file_invalid", /2_Dense.config\.json is missing/),
    );
    const outside = [{ type: "sentence_transformers.models.Pooling", path: "../1_Pooling" }];
    await assert.rejects(
      opened("bert", { files: { "modules.json": outside } }),
      refused("model_file_invalid", /"path"/),
    );
  });

  it("has the prompts of its inputs, and is refused if the default one is missing", async () => {
    const prompts = { query: "query: ", document: "" };
    const file = (config: object) => ({ files: { "config_sentence_transformers.json": config } });
    const checkpoint = await opened("bert", file({ prompts, default_prompt_name: "document" }));
    const found = JSON.parse(String(value(checkpoint, "troupe.embedding.prompts")));
    assert.deepEqual(found, { texts: prompts, fallback: "document" });
    assert.equal(value(await opened("bert", file({ prompts: {} })), "troupe.embedding.prompts"), undefined);
    // This model has prompts only for its task adapters, which are not converted.
    assert.equal(value(await opened("jina-bert-v3", file({ prompts })), "troupe.embedding.prompts"), undefined);
    await assert.rejects(
      opened("bert", file({ prompts, default_prompt_name: "passage" })),
      refused("model_file_invalid", /default_prompt_name names no prompt/),
    );
    await assert.rejects(
      opened("bert", file({ prompts: { query: { prefix: "a", suffix: "b" } } })),
      refused("model_file_invalid", /prompts\.query\.suffix is not supported/),
    );
  });

  it("of ColBERT is refused without the file that names its markers", async () => {
    const { files, ...model } = colbertCase("stanford");
    const { "artifact.metadata": _, ...others } = files;
    await inTemporaryFolder(async (folder) => {
      await writeColbert(folder, { ...model, files: others });
      await assert.rejects(openCheckpoint(folder), refused("model_file_invalid", /artifact\.metadata is missing/));
    });
  });

  it("has the sampling settings of generation_config.json", async () => {
    const files = { "generation_config.json": { top_k: 20, temperature: 0.6, top_p: "high", do_sample: true } };
    const { pairs } = await opened("qwen3", { files });
    const sampling = [...pairs].filter(([key]) => key.startsWith("general.sampling."));
    assert.deepEqual(sampling, [
      ["general.sampling.top_k", { type: "i32", value: 20 }],
      ["general.sampling.temp", { type: "f32", value: 0.6 }],
    ]);
  });

  it("has the suppressed tokens of generation_config.json", async () => {
    const suppressed = async (tokens: unknown) => {
      const { pairs } = await opened("qwen3", { files: { "generation_config.json": { suppress_tokens: tokens } } });
      return pairs.get("tokenizer.ggml.suppress_tokens");
    };
    assert.deepEqual(await suppressed([7, 280]), { type: "array", of: "i32", value: [7, 280] });
    for (const tokens of [null, [], ["7"]]) assert.equal(await suppressed(tokens), undefined);
  });

  it("is rejected with the name of what cannot be read", async () => {
    const cases: [Changes, string, RegExp][] = [
      [
        { config: { architectures: ["NewForCausalLM"] } },
        "unsupported",
        /"NewForCausalLM".*known are .*LlamaForCausalLM.*--engine llama/,
      ],
      [{ config: { architectures: [] } }, "model_file_invalid", /config\.json has "architectures"/],
      [{ config: { hidden_size: -1 } }, "model_file_invalid", /config\.json has "hidden_size": -1/],
      [{ config: { num_hidden_layers: 1e9 } }, "model_file_invalid", /"num_hidden_layers"/],
      [{ config: { num_hidden_layers: 2 } }, "model_file_invalid", /"num_hidden_layers": 2; expected more layers/],
      [{ config: { num_hidden_layers: 4 } }, "model_file_invalid", /no tensor of layer 3/],
      [{ config: { hidden_size: 128 } }, "model_file_invalid", /"hidden_size": 128; expected 64/],
      [{ config: { hidden_act: "relu" } }, "unsupported", /"hidden_act": "relu"/],
      [{ config: { rope_parameters: { rope_type: "spiral" } } }, "unsupported", /rope_type.*"spiral"/],
      [
        { config: { quantization_config: { quant_method: "aqlm" } } },
        "unsupported",
        /"aqlm".*known are gptq, awq.*GGUF/,
      ],
      [
        { tensors: (all) => ({ ...all, "model.layers.0.extra.weight": floats([2]) }) },
        "model_file_invalid",
        /extra\.weight/,
      ],
      [
        { tensors: (all) => ({ ...all, "model.layers.0.self_attn.q_proj.weight": floats([3, 64]) }) },
        "model_file_invalid",
        /blk\.0\.attn_q\.weight/,
      ],
    ];
    for (const [changes, code, words] of cases) await assert.rejects(opened("llama", changes), refused(code, words));
    await assert.rejects(
      opened("gemma2", { config: { query_pre_attn_scalar: 100 } }),
      refused("unsupported", /query_pre_attn_scalar/),
    );
    await assert.rejects(
      opened("qwen3moe", { config: { norm_topk_prob: false } }),
      refused("unsupported", /norm_topk_prob/),
    );
    await assert.rejects(
      opened("mixtral", { tensors: (all) => withoutKeys(all, /layers\.1\..*experts\.2\..*w1/) }),
      refused("model_file_invalid", /blk\.1\.ffn_gate_exps\.weight lacks part 2/),
    );
  });
});

function withoutKeys(tensors: StoredTensors, pattern: RegExp): StoredTensors {
  return Object.fromEntries(Object.entries(tensors).filter(([name]) => !pattern.test(name)));
}

function same({ tensors }: Checkpoint, wanted: string) {
  return tensors.find(({ name }) => name === wanted);
}

describe("docs/models.md", () => {
  it("has the architectures that can be loaded from a checkpoint, and their classes", () => {
    const text = readFileSync(new URL("../../../../../docs/models.md", import.meta.url), "utf8");
    const names = new Set(architectures.map(({ name }) => name));
    const rows = [...names].map((own) => {
      const classes = new Set(architectures.filter(({ name }) => name === own).flatMap((one) => one.classes));
      return `| \`${own}\` | ${[...classes].map((one) => `\`${one}\``).join(", ")} |`;
    });
    assert.ok(
      text.includes(`| GGUF architecture | classes |\n|---|---|\n${rows.join("\n")}\n`),
      `expected\n${rows.join("\n")}`,
    );
  });
});
