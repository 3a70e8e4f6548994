// GPT-2, GPT-NeoX (Pythia) and Phi 1 and 2: layer norms with biases, and a feed-forward without a gate.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { ropeSettings } from "../rope.ts";
import { reshaped, swapped } from "../row-changes.ts";
import type { Change, CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { attention, turned } from "./changes.ts";

/** Returns the table entries of a matrix that is stored transposed, and of its bias. */
function transposed(from: string, to: string): TensorTable {
  return { [`${from}.weight`]: { to, change: turned }, [`${from}.bias`]: to };
}

export const gpt2: CheckpointArchitecture = {
  name: "gpt2",
  classes: ["GPT2LMHeadModel"],
  prefixes: ["transformer."],
  defaults: {
    layer_norm_epsilon: 1e-5,
    activation_function: "gelu_new",
    scale_attn_weights: true,
    scale_attn_by_inverse_layer_idx: false,
    tie_word_embeddings: true,
  },
  addPairs(config, pairs) {
    config.mustBe("activation_function", "gelu_new");
    config.mustBe("scale_attn_weights", true);
    config.mustBe("scale_attn_by_inverse_layer_idx", false);
    pairs.counts({ feed_forward_length: config.countOr(4 * config.width, "n_inner") });
  },
  tensors: {
    wte: "token_embd",
    wpe: "position_embd",
    ln_f: "output_norm",
    lm_head: "output",
    "h.{l}.ln_1": "blk.{l}.attn_norm",
    "h.{l}.ln_2": "blk.{l}.ffn_norm",
    ...transposed("h.{l}.attn.c_attn", "blk.{l}.attn_qkv"),
    ...transposed("h.{l}.attn.c_proj", "blk.{l}.attn_output"),
    ...transposed("h.{l}.mlp.c_fc", "blk.{l}.ffn_up"),
    ...transposed("h.{l}.mlp.c_proj", "blk.{l}.ffn_down"),
    // Unused attention masks in older files.
    "h.{l}.attn.bias": null,
    "h.{l}.attn.masked_bias": null,
  },
};

/** Groups the rows of the fused matrix into queries, keys and values; the checkpoint stores them head by head. */
const byKind: Change = ({ rows, shape }, config) => {
  const single = reshaped(rows, shape.length > 1 ? rows.columns : 1);
  const sorted = swapped(single, { x: config.heads, y: 3, inner: config.headLength });
  return { rows: reshaped(sorted, rows.columns), shape };
};

function addRotated(config: Config, pairs: Pairs, fallback: number): void {
  const share = ropeSettings(config).main.numberOr(fallback, "partial_rotary_factor");
  pairs.counts({ "rope.dimension_count": Math.trunc(share * config.headLength) });
}

export const gptNeoX: CheckpointArchitecture = {
  name: "gptneox",
  classes: ["GPTNeoXForCausalLM"],
  prefixes: ["gpt_neox."],
  defaults: { layer_norm_eps: 1e-5, hidden_act: "gelu", rotary_pct: 0.25, use_parallel_residual: true },
  addPairs(config, pairs) {
    config.mustBe("hidden_act", "gelu");
    addRotated(config, pairs, config.number("rotary_pct"));
    pairs.truth("use_parallel_residual", config.truth(true, "use_parallel_residual"));
  },
  tensors: {
    embed_in: "token_embd",
    final_layer_norm: "output_norm",
    embed_out: "output",
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.post_attention_layernorm": "blk.{l}.ffn_norm",
    "layers.{l}.attention.query_key_value": { to: "blk.{l}.attn_qkv", change: byKind },
    "layers.{l}.attention.dense": "blk.{l}.attn_output",
    "layers.{l}.mlp.dense_h_to_4h": "blk.{l}.ffn_up",
    "layers.{l}.mlp.dense_4h_to_h": "blk.{l}.ffn_down",
    // Unused attention masks and RoPE frequencies in older files.
    "layers.{l}.attention.bias": null,
    "layers.{l}.attention.masked_bias": null,
  },
};

export const phi2: CheckpointArchitecture = {
  name: "phi2",
  classes: ["PhiForCausalLM"],
  defaults: { layer_norm_eps: 1e-5, hidden_act: "gelu_new", qk_layernorm: false, partial_rotary_factor: 0.5 },
  addPairs(config, pairs) {
    config.mustBe("hidden_act", "gelu_new");
    config.mustBe("qk_layernorm", false);
    addRotated(config, pairs, 0.5);
    pairs.counts({ "attention.head_count_kv": config.kvHeads });
  },
  tensors: {
    embed_tokens: "token_embd",
    final_layernorm: "output_norm",
    lm_head: "output",
    ...attention,
    "layers.{l}.self_attn.dense": "blk.{l}.attn_output",
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.mlp.fc1": "blk.{l}.ffn_up",
    "layers.{l}.mlp.fc2": "blk.{l}.ffn_down",
  },
};
