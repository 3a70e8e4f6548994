// Granite 4, hybrids: a state space (Mamba 2) in most layers, attention without RoPE in the others.
import type { CheckpointArchitecture } from "./architecture.ts";
import { both, column, gateAndUp, grouped, minusExp, squeezed } from "./changes.ts";
import { addGranitePairs, attentionLayers, graniteMoe } from "./granite.ts";

/** Context length in tokens: a large number, because no RoPE limits it. */
const contextLength = 2 ** 20;

export const graniteHybrid: CheckpointArchitecture = {
  name: "granitehybrid",
  classes: ["GraniteMoeHybridForCausalLM"],
  defaults: {
    rms_norm_eps: 1e-6,
    hidden_act: "silu",
    mamba_expand: 2,
    mamba_d_conv: 4,
    mamba_d_state: 256,
    mamba_n_groups: 1,
    mamba_n_heads: 128,
  },
  addPairs(config, pairs) {
    config.mustBe("hidden_act", "silu");
    config.mustBe("position_embedding_type", "nope");
    addGranitePairs(config, pairs);
    const { kvHeads } = config;
    pairs.counts({
      context_length: contextLength,
      expert_shared_feed_forward_length: config.countOr(undefined, "shared_intermediate_size"),
      "ssm.conv_kernel": config.count("mamba_d_conv"),
      "ssm.state_size": config.count("mamba_d_state"),
      "ssm.group_count": config.count("mamba_n_groups"),
      "ssm.inner_size": config.count("mamba_expand") * config.width,
      "ssm.time_step_rank": config.count("mamba_n_heads"),
    });
    // 0 heads mark a layer with a state space.
    const heads = attentionLayers(config).map((hasAttention) => (hasAttention ? kvHeads : 0));
    pairs.list("attention.head_count_kv", "i32", heads);
    pairs.truth("rope.scaling.finetuned", false);
    if (config.countOr(0, "num_local_experts") > 0) return;
    // The shared expert is the only feed-forward.
    pairs.counts({ feed_forward_length: config.count("shared_intermediate_size") });
    for (const key of ["expert_count", "expert_used_count", "expert_shared_feed_forward_length"]) pairs.remove(key);
  },
  tensors: {
    ...graniteMoe.tensors,
    "layers.{l}.mamba.in_proj": "blk.{l}.ssm_in",
    "layers.{l}.mamba.conv1d.weight": { to: "blk.{l}.ssm_conv1d", change: squeezed },
    "layers.{l}.mamba.conv1d.bias": "blk.{l}.ssm_conv1d",
    "layers.{l}.mamba.dt_bias": { to: "blk.{l}.ssm_dt", suffix: ".bias" },
    "layers.{l}.mamba.A_log": { to: "blk.{l}.ssm_a", change: both(column, minusExp), suffix: "" },
    "layers.{l}.mamba.D": { to: "blk.{l}.ssm_d", change: column, suffix: "" },
    "layers.{l}.mamba.norm": { to: "blk.{l}.ssm_norm", change: grouped((config) => config.count("mamba_n_groups")) },
    "layers.{l}.mamba.out_proj": "blk.{l}.ssm_out",
  },
};

/** Hybrids without experts, whose feed-forward is stored as the shared expert. */
export const graniteHybridDense: CheckpointArchitecture = {
  ...graniteHybrid,
  applies: (config) => !config.countOr(0, "num_local_experts"),
  tensors: {
    ...graniteHybrid.tensors,
    "layers.{l}.shared_mlp.input_linear": gateAndUp("blk.{l}.ffn_gate", "blk.{l}.ffn_up"),
    "layers.{l}.shared_mlp.output_linear": "blk.{l}.ffn_down",
  },
};
