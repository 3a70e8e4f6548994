// EuroBERT and NeoBERT: encoders built like Llama, with bidirectional attention.
import { swapped } from "../row-changes.ts";
import type { Change, CheckpointArchitecture } from "./architecture.ts";
import { attention, feedForward, outerTensors, preNorms } from "./changes.ts";

export const euroBert: CheckpointArchitecture = {
  name: "eurobert",
  classes: ["EuroBertModel", "EuroBertForMaskedLM"],
  defaults: { rms_norm_eps: 1e-5, hidden_act: "silu", attention_bias: false, mlp_bias: false },
  addPairs(config, pairs) {
    config.mustBe("hidden_act", "silu");
    pairs.truth("attention.causal", false);
    pairs.counts({ vocab_size: config.count("vocab_size") });
    pairs.text("rope.scaling.type", "none");
  },
  tensors: { ...outerTensors, ...preNorms, ...attention, ...feedForward, lm_head: null },
  pools: true,
};

/** Groups the rows of the fused matrix into queries, keys and values; the checkpoint stores them head by head. */
const byKind: Change = ({ rows, shape }, config) => ({
  rows: swapped(rows, { x: config.heads, y: 3, inner: config.headLength }),
  shape,
});

export const neoBert: CheckpointArchitecture = {
  name: "neo-bert",
  classes: ["NeoBERT", "NeoBERTLMHead"],
  defaults: { norm_eps: 1e-6, rms_norm: true, rope: true, hidden_act: "SwiGLU" },
  addPairs(config, pairs) {
    for (const field of ["rms_norm", "rope"]) config.mustBe(field, true);
    config.mustBe("hidden_act", "SwiGLU");
    pairs.truth("attention.causal", false);
    // The official Python class makes gate and up 2/3 as long as intermediate_size, rounded up to a multiple of 8.
    const inner = Math.trunc((2 * config.count("intermediate_size")) / 3);
    pairs.counts({ feed_forward_length: 8 * Math.ceil(inner / 8), pooling_type: 2 });
    pairs.floats({ "rope.freq_base": 10_000, "attention.layer_norm_rms_epsilon": config.number("norm_eps") });
    pairs.text("rope.scaling.type", "none");
  },
  tensors: {
    encoder: "token_embd",
    layer_norm: "enc.output_norm",
    "transformer_encoder.{l}.attention_norm": "blk.{l}.attn_norm",
    "transformer_encoder.{l}.qkv": { to: "blk.{l}.attn_qkv", change: byKind },
    "transformer_encoder.{l}.wo": "blk.{l}.attn_output",
    "transformer_encoder.{l}.ffn_norm": "blk.{l}.ffn_norm",
    "transformer_encoder.{l}.ffn.w12": "blk.{l}.ffn_up",
    "transformer_encoder.{l}.ffn.w3": "blk.{l}.ffn_down",
    decoder: null,
  },
  pools: true,
};
