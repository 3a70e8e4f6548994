// Jina Embeddings 2 (a position bias; gate and up in one matrix) and 3 (rotated positions; task adapters).
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { joined, sliced } from "../row-changes.ts";
import type { Change, CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { addEncoderPairs, bertEmbeddings, bertHeads, bertLayers, colbertProjection, colbertRules } from "./bert.ts";
import { attention } from "./changes.ts";

/** Swaps the two halves of the rows, because the engines expect the rows of the gate before those of the up matrix. */
const gateFirst: Change = ({ rows, shape }) => {
  const half = rows.rows / 2;
  return { rows: joined([sliced(rows, half, half), sliced(rows, 0, half)]), shape };
};

export const jinaBertV2: CheckpointArchitecture = {
  name: "jina-bert-v2",
  classes: ["JinaBertModel", "JinaBertForMaskedLM"],
  prefixes: ["bert."],
  defaults: { layer_norm_eps: 1e-12, type_vocab_size: 2, feed_forward_type: "geglu" },
  addPairs(config, pairs) {
    config.mustBe("position_embedding_type", "alibi");
    config.mustBe("feed_forward_type", "geglu");
    addEncoderPairs(config, pairs);
  },
  tensors: {
    ...bertEmbeddings,
    ...bertLayers,
    ...bertHeads,
    "encoder.layer.{l}.mlp.gated_layers": "blk.{l}.ffn_up",
    "encoder.layer.{l}.mlp.wo": "blk.{l}.ffn_down",
    "encoder.layer.{l}.mlp.layernorm": "blk.{l}.layer_output_norm",
    // The code model only: norms on queries and keys, and one more norm after the attention.
    "encoder.layer.{l}.attention.self.layer_norm_q": "blk.{l}.attn_q_norm",
    "encoder.layer.{l}.attention.self.layer_norm_k": "blk.{l}.attn_k_norm",
    "encoder.layer.{l}.layer_norm_1": "blk.{l}.attn_norm_2",
    "encoder.layer.{l}.layer_norm_2": "blk.{l}.layer_output_norm",
    "encoder.layer.{l}.mlp.up_gated_layer": { to: "blk.{l}.ffn_up", change: gateFirst },
    "encoder.layer.{l}.mlp.down_layer": "blk.{l}.ffn_down",
  },
  pools: true,
};

/** GGUF names of the matrices that task adapters change. All task adapters are left out: the model computes without a task. */
const adapted: Readonly<Record<string, string>> = {
  "embeddings.word_embeddings": "token_embd",
  "embeddings.token_type_embeddings": "token_types",
  "encoder.layers.{l}.mixer.Wqkv": "blk.{l}.attn_qkv",
  "encoder.layers.{l}.mixer.out_proj": "blk.{l}.attn_output",
  "encoder.layers.{l}.mlp.fc1": "blk.{l}.ffn_up",
  "encoder.layers.{l}.mlp.fc2": "blk.{l}.ffn_down",
};

function adaptedTensors(from: string, to: string): TensorTable {
  return {
    [from]: to,
    [`${from}.parametrizations.weight.original`]: { to, suffix: ".weight" },
    [`${from}.parametrizations.weight.{e}.lora_A`]: null,
    [`${from}.parametrizations.weight.{e}.lora_B`]: null,
  };
}

function addV3Pairs(config: Config, pairs: Pairs): void {
  addEncoderPairs(config, pairs);
  pairs.counts({
    context_length: config.count("max_position_embeddings") - config.countOr(1, "pad_token_id") - 1,
  });
}

export const jinaBertV3: CheckpointArchitecture = {
  name: "jina-bert-v3",
  classes: ["XLMRobertaModel"],
  applies: (config) => config.value("lora_adaptations") !== undefined,
  prefixes: ["roberta."],
  defaults: { layer_norm_eps: 1e-5, type_vocab_size: 1, pad_token_id: 1 },
  addPairs(config, pairs) {
    config.mustBe("position_embedding_type", "rotary");
    addV3Pairs(config, pairs);
    pairs.floats({ "rope.freq_base": config.number("rotary_emb_base") });
  },
  tensors: {
    ...Object.assign({}, ...Object.entries(adapted).map(([from, to]) => adaptedTensors(from, to))),
    ...Object.fromEntries(Object.keys(adaptedTensors("pooler.dense", "")).map((name) => [name, null])),
    emb_ln: "token_embd_norm",
    "encoder.layers.{l}.norm1": "blk.{l}.attn_output_norm",
    "encoder.layers.{l}.norm2": "blk.{l}.layer_output_norm",
  },
  pools: true,
  adaptsByTask: true,
};

/** Jina ColBERT 2: the encoder of Jina Embeddings 3 without adapters, and a matrix that projects each token. */
export const jinaColbertV2: CheckpointArchitecture = {
  ...jinaBertV3,
  ...colbertRules,
  applies: (config) => config.value("position_embedding_type") === "rotary",
  tensors: { ...jinaBertV3.tensors, ...colbertProjection },
};

/** Jina Embeddings 3 as saved by the class in transformers, which writes either the older tensor names or its own. */
export const jinaEmbeddingsV3: CheckpointArchitecture = {
  ...jinaBertV3,
  classes: ["JinaEmbeddingsV3Model"],
  applies: () => true,
  defaults: { ...jinaBertV3.defaults, rope_theta: 20_000 },
  addPairs: addV3Pairs,
  tensors: {
    ...jinaBertV3.tensors,
    ...bertEmbeddings,
    ...attention,
    "layers.{l}.post_attention_layernorm": "blk.{l}.attn_output_norm",
    "layers.{l}.mlp.fc1": "blk.{l}.ffn_up",
    "layers.{l}.mlp.fc2": "blk.{l}.ffn_down",
    "layers.{l}.post_mlp_layernorm": "blk.{l}.layer_output_norm",
  },
};
