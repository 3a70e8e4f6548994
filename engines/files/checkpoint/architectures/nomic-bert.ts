// Nomic Embed: an encoder with rotated positions and a gated feed-forward.
import type { CheckpointArchitecture } from "./architecture.ts";
import { addEncoderPairs } from "./bert.ts";

/** Lengths that the models were trained for, by the field n_positions. */
const trainedLengths: Readonly<Record<number, number>> = { 8192: 2048, 2048: 512 };

export const nomicBert: CheckpointArchitecture = {
  name: "nomic-bert",
  classes: ["NomicBertModel"],
  applies: (config) => !config.countOr(0, "moe_every_n_layers"),
  defaults: { layer_norm_epsilon: 1e-12, max_trained_positions: 2048 },
  addPairs(config, pairs) {
    config.mustBe("activation_function", "swiglu");
    for (const field of [
      "prenorm",
      "qkv_proj_bias",
      "mlp_fc1_bias",
      "mlp_fc2_bias",
      "rotary_emb_interleaved",
      "causal",
    ]) {
      config.mustBe(field, false);
    }
    config.mustBe("rotary_emb_fraction", 1);
    const positions = config.count("n_positions", "max_position_embeddings");
    const trained = config.count("max_trained_positions");
    pairs.counts({ context_length: trained === 2048 ? (trainedLengths[positions] ?? positions) : positions });
    pairs.floats({ "rope.freq_base": config.numberOr(undefined, "rotary_emb_base") });
    addEncoderPairs(config, pairs);
  },
  tensors: {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    emb_ln: "token_embd_norm",
    "encoder.layers.{l}.attn.Wqkv": "blk.{l}.attn_qkv",
    "encoder.layers.{l}.attn.out_proj": "blk.{l}.attn_output",
    "encoder.layers.{l}.norm1": "blk.{l}.attn_output_norm",
    "encoder.layers.{l}.mlp.fc11": "blk.{l}.ffn_up",
    "encoder.layers.{l}.mlp.fc12": "blk.{l}.ffn_gate",
    "encoder.layers.{l}.mlp.fc2": "blk.{l}.ffn_down",
    "encoder.layers.{l}.norm2": "blk.{l}.layer_output_norm",
    "pooler.dense": null,
  },
  pools: true,
};
