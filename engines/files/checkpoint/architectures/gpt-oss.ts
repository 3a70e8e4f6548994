// gpt-oss: experts in MXFP4, attention with sinks and sliding windows.
import { picked, reshaped } from "../row-changes.ts";
import type { Change, CheckpointArchitecture } from "./architecture.ts";
import { attention, both, outerTensors, turned } from "./changes.ts";

/** Transposes the matrices of experts, except those in MXFP4, which are stored by rows. */
const byRows: Change = (tensor, config) => (tensor.rows.kind === "mxfp4" ? tensor : turned(tensor, config));

/** Returns a change that keeps every second row from `first` on, because gate and up rows are interleaved. */
function everySecond(first: number): Change {
  return ({ rows, shape }) => {
    const [columns = 1, matrixRows = 1, ...more] = shape;
    const count = matrixRows / 2;
    return { rows: picked(rows, { period: matrixRows, first, step: 2, count }), shape: [columns, count, ...more] };
  };
}

function everySecondBias(first: number): Change {
  return ({ rows, shape }) => {
    const [length = 1, experts = 1] = shape;
    const chosen = picked(reshaped(rows, 1), { period: length, first, step: 2, count: length / 2 });
    return { rows: reshaped(chosen, length / 2), shape: [length / 2, experts] };
  };
}

export const gptOss: CheckpointArchitecture = {
  name: "gpt-oss",
  classes: ["GptOssForCausalLM"],
  defaults: { rms_norm_eps: 1e-5, sliding_window: 128 },
  addPairs(config, pairs) {
    pairs.counts({
      "attention.sliding_window": config.count("sliding_window"),
      expert_feed_forward_length: config.count("intermediate_size"),
    });
  },
  tensors: {
    ...outerTensors,
    ...attention,
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.post_attention_layernorm": "blk.{l}.post_attention_norm",
    "layers.{l}.self_attn.sinks": { to: "blk.{l}.attn_sinks", suffix: ".weight" },
    "layers.{l}.mlp.router": "blk.{l}.ffn_gate_inp",
    "layers.{l}.mlp.experts.gate_up_proj": [
      { to: "blk.{l}.ffn_gate_exps", change: both(byRows, everySecond(0)) },
      { to: "blk.{l}.ffn_up_exps", change: both(byRows, everySecond(1)) },
    ],
    "layers.{l}.mlp.experts.gate_up_proj_bias": [
      { to: "blk.{l}.ffn_gate_exps", change: everySecondBias(0), suffix: ".bias" },
      { to: "blk.{l}.ffn_up_exps", change: everySecondBias(1), suffix: ".bias" },
    ],
    "layers.{l}.mlp.experts.down_proj": { to: "blk.{l}.ffn_down_exps", change: byRows },
    "layers.{l}.mlp.experts.down_proj_bias": { to: "blk.{l}.ffn_down_exps", suffix: ".bias" },
  },
};
