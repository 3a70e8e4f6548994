// ERNIE 4.5, dense and mixtures of experts: like Llama, but the official Python class already rotates neighbouring values, as
// llama.cpp does.
import { reshaped } from "../row-changes.ts";
import type { Change, CheckpointArchitecture } from "./architecture.ts";
import { attention, experts, feedForward, outerTensors, preNorms } from "./changes.ts";
import { sharedExperts } from "./deepseek2.ts";

export const ernie45: CheckpointArchitecture = {
  name: "ernie4_5",
  classes: ["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
  prefixes: ["ernie."],
  defaults: { rms_norm_eps: 1e-5 },
  tensors: { ...outerTensors, ...preNorms, ...attention, ...feedForward },
};

const oneRow: Change = ({ rows }) => ({
  rows: reshaped(rows, rows.rows * rows.columns),
  shape: [rows.rows * rows.columns],
});

export const ernie45Moe: CheckpointArchitecture = {
  ...ernie45,
  name: "ernie4_5-moe",
  classes: ["Ernie4_5_MoeForCausalLM"],
  defaults: { rms_norm_eps: 1e-5, moe_layer_interval: 1, moe_layer_start_index: 1, moe_num_shared_experts: 0 },
  addPairs(config, pairs) {
    const inner = config.count("moe_intermediate_size");
    const shared = config.countOr(0, "moe_num_shared_experts");
    pairs.counts({
      expert_count: config.count("moe_num_experts"),
      expert_used_count: config.count("moe_k"),
      interleave_moe_layer_step: config.count("moe_layer_interval"),
      leading_dense_block_count: config.countOr(0, "moe_layer_start_index"),
      expert_feed_forward_length: inner,
      expert_shared_count: shared,
      expert_shared_feed_forward_length: shared > 0 ? shared * inner : undefined,
    });
  },
  tensors: {
    ...ernie45.tensors,
    ...experts,
    ...sharedExperts,
    "layers.{l}.mlp.moe_statics.e_score_correction_bias": {
      to: "blk.{l}.exp_probs_b",
      change: oneRow,
      suffix: ".bias",
    },
  },
};
