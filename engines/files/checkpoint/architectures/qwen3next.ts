// Qwen 3 Next and Qwen 3.5: linear attention in three of four layers; dense, or mixtures of experts.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { ropeSettings } from "../rope.ts";
import { joined, picked, reshaped, sliced, swapped, swappedColumns } from "../row-changes.ts";
import type { RowSource } from "../row-source.ts";
import type { Change, CheckpointArchitecture, Shaped, TensorTable } from "./architecture.ts";
import { attention, both, experts, feedForward, minusExp, plusOne, squeezed } from "./changes.ts";
import { sharedExpert } from "./qwen2moe.ts";

interface LinearSizes {
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly keyLength: number;
  readonly valueLength: number;
  /** Number of value heads per key head. */
  readonly share: number;
}

function linearSizes(config: Config): LinearSizes {
  const keyHeads = config.count("linear_num_key_heads");
  const valueHeads = config.count("linear_num_value_heads");
  const share = valueHeads / keyHeads;
  const [keyLength, valueLength] = [config.count("linear_key_head_dim"), config.count("linear_value_head_dim")];
  return { keyHeads, valueHeads, keyLength, valueLength, share };
}

function addLinearPairs(config: Config, pairs: Pairs): void {
  const { keyHeads, valueHeads, keyLength, valueLength } = linearSizes(config);
  const { main } = ropeSettings(config);
  pairs.counts({
    "ssm.conv_kernel": config.count("linear_conv_kernel_dim"),
    "ssm.state_size": keyLength,
    "ssm.group_count": keyHeads,
    "ssm.time_step_rank": valueHeads,
    "ssm.inner_size": valueLength * valueHeads,
    full_attention_interval: config.countOr(4, "full_attention_interval"),
    "rope.dimension_count": Math.trunc(config.headLength * main.numberOr(0.25, "partial_rotary_factor")),
    expert_feed_forward_length: config.countOr(undefined, "moe_intermediate_size"),
    expert_shared_feed_forward_length: config.countOr(undefined, "shared_expert_intermediate_size"),
  });
  const types = config.layerTexts("layer_types", config.layers);
  if (types) {
    const isRecurrent = types.map((type) => type === "linear_attention");
    pairs.truths("attention.recurrent_layers", isRecurrent);
  }
}

/** Returns the row counts of one key head in the fused matrix, which has the rows of its queries, keys, values and gates. */
function partsOfHead(config: Config) {
  const { keyLength, valueLength, share } = linearSizes(config);
  const values = share * valueLength;
  const period = 2 * keyLength + 2 * values;
  return { keyLength, values, period };
}

const queriesKeysValues: Change = ({ rows, shape }, config) => {
  const { keyLength, values, period } = partsOfHead(config);
  const parts = joined([
    picked(rows, { period, first: 0, count: keyLength }),
    picked(rows, { period, first: keyLength, count: keyLength }),
    picked(rows, { period, first: 2 * keyLength, count: values }),
  ]);
  return { rows: parts, shape: [shape[0] ?? 1, parts.rows] };
};

const gates: Change = ({ rows, shape }, config) => {
  const { keyLength, values, period } = partsOfHead(config);
  const own = picked(rows, { period, first: 2 * keyLength + values, count: values });
  return { rows: own, shape: [shape[0] ?? 1, own.rows] };
};

const common: TensorTable = {
  embed_tokens: "token_embd",
  lm_head: "output",
  norm: { to: "output_norm", change: plusOne },
  ...attention,
  ...feedForward,
  ...experts,
  ...sharedExpert,
  "layers.{l}.input_layernorm": { to: "blk.{l}.attn_norm", change: plusOne },
  "layers.{l}.post_attention_layernorm": { to: "blk.{l}.post_attention_norm", change: plusOne },
  "layers.{l}.self_attn.q_norm": { to: "blk.{l}.attn_q_norm", change: plusOne },
  "layers.{l}.self_attn.k_norm": { to: "blk.{l}.attn_k_norm", change: plusOne },
  "layers.{l}.linear_attn.norm": "blk.{l}.ssm_norm",
};

export const qwen3next: CheckpointArchitecture = {
  name: "qwen3next",
  classes: ["Qwen3NextForCausalLM"],
  defaults: { rms_norm_eps: 1e-6, norm_topk_prob: true },
  addPairs: addLinearPairs,
  tensors: {
    ...common,
    "layers.{l}.linear_attn.in_proj_qkvz": [
      { to: "blk.{l}.attn_qkv", change: queriesKeysValues },
      { to: "blk.{l}.attn_gate", change: gates },
    ],
    "layers.{l}.linear_attn.in_proj_ba": "blk.{l}.ssm_ba",
    "layers.{l}.linear_attn.conv1d": { to: "blk.{l}.ssm_conv1d", change: squeezed },
    "layers.{l}.linear_attn.A_log": { to: "blk.{l}.ssm_a", change: minusExp, suffix: "" },
    "layers.{l}.linear_attn.dt_bias": { to: "blk.{l}.ssm_dt", suffix: ".bias" },
    "layers.{l}.linear_attn.out_proj": "blk.{l}.ssm_out",
  },
};

/** Reorders value heads for llama.cpp: the first value head of every key head, then the second of every key head, and so on. */
function inTurns(rows: RowSource, config: Config, inner: number): RowSource {
  const { keyHeads, share } = linearSizes(config);
  return share === 1 ? rows : swapped(rows, { x: keyHeads, y: share, inner });
}

const valueRows: Change = ({ rows, shape }, config) => ({
  rows: inTurns(rows, config, linearSizes(config).valueLength),
  shape,
});

const oneRowAHead: Change = ({ rows, shape }: Shaped, config) => {
  if (shape.length > 1) return { rows: inTurns(rows, config, 1), shape };
  return { rows: reshaped(inTurns(reshaped(rows, 1), config, 1), rows.columns), shape };
};

const valuesAtEnd: Change = ({ rows, shape }, config) => {
  const { keyHeads, keyLength } = linearSizes(config);
  const first = 2 * keyHeads * keyLength;
  const values = sliced(rows, first, rows.rows - first);
  return { rows: joined([sliced(rows, 0, first), inTurns(values, config, linearSizes(config).valueLength)]), shape };
};

const valueColumns: Change = ({ rows, shape }, config) => {
  const { keyHeads, share, valueLength } = linearSizes(config);
  if (share === 1) return { rows, shape };
  return { rows: swappedColumns(rows, { x: keyHeads, y: share, inner: valueLength }), shape };
};

const qwen35Defaults = {
  rms_norm_eps: 1e-6,
  hidden_size: 4096,
  num_hidden_layers: 32,
  num_attention_heads: 16,
  num_key_value_heads: 4,
  head_dim: 256,
  max_position_embeddings: 32_768,
  linear_conv_kernel_dim: 4,
  linear_key_head_dim: 128,
  linear_value_head_dim: 128,
  linear_num_key_heads: 16,
  linear_num_value_heads: 32,
  rope_theta: 10_000,
};

export const qwen35: CheckpointArchitecture = {
  name: "qwen35",
  classes: ["Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"],
  defaults: { ...qwen35Defaults, intermediate_size: 12_288 },
  addPairs(config, pairs) {
    addLinearPairs(config, pairs);
    const sections = ropeSettings(config).main.numbers("mrope_section") ?? [11, 11, 10];
    pairs.list("rope.dimension_sections", "i32", [...sections, 0, 0, 0, 0].slice(0, 4));
  },
  tensors: {
    ...common,
    "layers.{l}.linear_attn.in_proj_qkv": { to: "blk.{l}.attn_qkv", change: valuesAtEnd },
    "layers.{l}.linear_attn.in_proj_z": { to: "blk.{l}.attn_gate", change: valueRows },
    "layers.{l}.linear_attn.in_proj_b": { to: "blk.{l}.ssm_beta", change: oneRowAHead },
    "layers.{l}.linear_attn.in_proj_a": { to: "blk.{l}.ssm_alpha", change: oneRowAHead },
    "layers.{l}.linear_attn.conv1d": { to: "blk.{l}.ssm_conv1d", change: both(squeezed, valuesAtEnd) },
    "layers.{l}.linear_attn.A_log": { to: "blk.{l}.ssm_a", change: both(oneRowAHead, minusExp), suffix: "" },
    "layers.{l}.linear_attn.dt_bias": { to: "blk.{l}.ssm_dt", change: oneRowAHead, suffix: ".bias" },
    "layers.{l}.linear_attn.out_proj": { to: "blk.{l}.ssm_out", change: valueColumns },
  },
};

export const qwen35moe: CheckpointArchitecture = {
  ...qwen35,
  name: "qwen35moe",
  classes: ["Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"],
  defaults: {
    ...qwen35Defaults,
    hidden_size: 2048,
    num_hidden_layers: 40,
    num_key_value_heads: 2,
    moe_intermediate_size: 512,
    shared_expert_intermediate_size: 512,
    num_experts: 256,
    num_experts_per_tok: 8,
  },
};
