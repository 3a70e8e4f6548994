// Nomic Embed: an encoder with rotated positions and a gated feed-forward, or with experts in some layers.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { transposed } from "../row-changes.ts";
import type { Change, CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { addEncoderPairs } from "./bert.ts";

/** Context lengths in tokens that the models were trained for, by the value of n_positions. */
const trainedLengths: Readonly<Record<number, number>> = { 8192: 2048, 2048: 512 };

function addNomicPairs(config: Config, pairs: Pairs): void {
  for (const field of ["prenorm", "rotary_emb_interleaved", "causal"]) config.mustBe(field, false);
  config.mustBe("rotary_emb_fraction", 1);
  const positions = config.count("n_positions", "max_position_embeddings");
  const trained = config.count("max_trained_positions");
  pairs.counts({ context_length: trained === 2048 ? (trainedLengths[positions] ?? positions) : positions });
  pairs.floats({ "rope.freq_base": config.numberOr(undefined, "rotary_emb_base") });
  addEncoderPairs(config, pairs);
}

const common: TensorTable = {
  "embeddings.word_embeddings": "token_embd",
  "embeddings.token_type_embeddings": "token_types",
  emb_ln: "token_embd_norm",
  "encoder.layers.{l}.attn.Wqkv": "blk.{l}.attn_qkv",
  "encoder.layers.{l}.attn.out_proj": "blk.{l}.attn_output",
  "encoder.layers.{l}.norm1": "blk.{l}.attn_output_norm",
  "encoder.layers.{l}.mlp.fc2": "blk.{l}.ffn_down",
  "encoder.layers.{l}.norm2": "blk.{l}.layer_output_norm",
  "pooler.dense": null,
};

export const nomicBert: CheckpointArchitecture = {
  name: "nomic-bert",
  classes: ["NomicBertModel"],
  applies: (config) => !config.countOr(0, "moe_every_n_layers"),
  defaults: { layer_norm_epsilon: 1e-12, max_trained_positions: 2048 },
  addPairs(config, pairs) {
    config.mustBe("activation_function", "swiglu");
    for (const field of ["qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"]) config.mustBe(field, false);
    addNomicPairs(config, pairs);
  },
  tensors: {
    ...common,
    "encoder.layers.{l}.mlp.fc11": "blk.{l}.ffn_up",
    "encoder.layers.{l}.mlp.fc12": "blk.{l}.ffn_gate",
  },
  pools: true,
};

/** Splits the first matrices of all experts, which the checkpoint stores one after another in one matrix. */
const enter: Change = ({ rows, shape }, config) => {
  const inner = config.count("n_inner", "intermediate_size");
  return { rows, shape: [shape[0] ?? 1, inner, rows.rows / inner] };
};

/** Splits the second matrices of all experts and transposes each, because they are stored transposed. */
const leave: Change = ({ rows, shape }, config) => {
  const inner = config.count("n_inner", "intermediate_size");
  return { rows: transposed(rows, inner), shape: [inner, shape[0] ?? 1, rows.rows / inner] };
};

export const nomicBertMoe: CheckpointArchitecture = {
  name: "nomic-bert-moe",
  classes: ["NomicBertModel"],
  defaults: { layer_norm_epsilon: 1e-12, max_trained_positions: 2048 },
  addPairs(config, pairs) {
    config.mustBe("activation_function", "gelu");
    addNomicPairs(config, pairs);
    pairs.counts({
      moe_every_n_layers: config.count("moe_every_n_layers"),
      expert_used_count: config.count("moe_top_k"),
    });
  },
  tensors: {
    ...common,
    "encoder.layers.{l}.mlp.fc1": "blk.{l}.ffn_up",
    "encoder.layers.{l}.mlp.router.layer": "blk.{l}.ffn_gate_inp",
    "encoder.layers.{l}.mlp.experts.mlp.w1": { to: "blk.{l}.ffn_up_exps", change: enter },
    "encoder.layers.{l}.mlp.experts.mlp.w2": { to: "blk.{l}.ffn_down_exps", change: leave },
    // Left out, as in llama.cpp's converter: llama.cpp has no such tensor.
    "encoder.layers.{l}.mlp.experts.bias": null,
  },
  pools: true,
};
