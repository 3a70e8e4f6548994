// Mamba and Mamba 2: state spaces without attention.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { both, column, grouped, minusExp, squeezed } from "./changes.ts";

/** Context length in tokens: a large number, because the architecture does not limit it. */
const contextLength = 2 ** 20;

const common: TensorTable = {
  embeddings: "token_embd",
  norm_f: "output_norm",
  lm_head: "output",
  "layers.{l}.norm": "blk.{l}.attn_norm",
  "layers.{l}.mixer.in_proj": "blk.{l}.ssm_in",
  "layers.{l}.mixer.conv1d.weight": { to: "blk.{l}.ssm_conv1d", change: squeezed },
  "layers.{l}.mixer.conv1d.bias": "blk.{l}.ssm_conv1d",
  "layers.{l}.mixer.out_proj": "blk.{l}.ssm_out",
};

function addStatePairs(config: Config, pairs: Pairs): void {
  config.mustBe("hidden_act", "silu");
  config.mustBe("use_bias", false);
  pairs.counts({
    context_length: contextLength,
    // There is neither attention nor a feed-forward.
    feed_forward_length: 0,
    "attention.head_count": 0,
    "ssm.conv_kernel": config.count("conv_kernel", "d_conv"),
    "ssm.state_size": config.count("state_size", "d_state"),
  });
  pairs.floats({ "attention.layer_norm_rms_epsilon": config.number("layer_norm_epsilon") });
}

// num_attention_heads only satisfies a general check; the GGUF key gets 0.
const defaults = { num_attention_heads: 1, hidden_act: "silu", use_bias: false, layer_norm_epsilon: 1e-5, expand: 2 };

export const mamba: CheckpointArchitecture = {
  name: "mamba",
  classes: ["MambaForCausalLM", "MambaLMHeadModel"],
  prefixes: ["backbone."],
  defaults: { ...defaults, conv_kernel: 4, state_size: 16 },
  addPairs(config, pairs) {
    addStatePairs(config, pairs);
    const rank = config.value("time_step_rank");
    const inner = config.countOr(2 * config.width, "intermediate_size", "d_inner");
    if (inner !== 2 * config.width) throw config.unsupported("intermediate_size", inner, "twice the hidden size");
    pairs.counts({
      "ssm.inner_size": inner,
      "ssm.time_step_rank": typeof rank === "number" ? config.count("time_step_rank") : Math.ceil(config.width / 16),
    });
    pairs.truth("ssm.dt_b_c_rms", false);
  },
  tensors: {
    ...common,
    "layers.{l}.mixer.x_proj": "blk.{l}.ssm_x",
    "layers.{l}.mixer.dt_proj": "blk.{l}.ssm_dt",
    "layers.{l}.mixer.A_log": { to: "blk.{l}.ssm_a", change: minusExp, suffix: "" },
    "layers.{l}.mixer.D": { to: "blk.{l}.ssm_d", suffix: "" },
  },
};

/** Returns the tensor table of Mamba 2's state space. `module`: prefix of its tensor names in the checkpoint. */
export function mamba2State(module: string, groups: (config: Config) => number): TensorTable {
  return {
    [`${module}.in_proj`]: "blk.{l}.ssm_in",
    [`${module}.conv1d.weight`]: { to: "blk.{l}.ssm_conv1d", change: squeezed },
    [`${module}.conv1d.bias`]: "blk.{l}.ssm_conv1d",
    [`${module}.dt_bias`]: { to: "blk.{l}.ssm_dt", suffix: ".bias" },
    [`${module}.A_log`]: { to: "blk.{l}.ssm_a", change: both(column, minusExp), suffix: "" },
    [`${module}.D`]: { to: "blk.{l}.ssm_d", change: column, suffix: "" },
    [`${module}.norm`]: { to: "blk.{l}.ssm_norm", change: grouped(groups) },
    [`${module}.out_proj`]: "blk.{l}.ssm_out",
  };
}

export const mamba2: CheckpointArchitecture = {
  name: "mamba2",
  classes: ["Mamba2ForCausalLM"],
  prefixes: ["backbone."],
  defaults: { ...defaults, conv_kernel: 4, state_size: 128, n_groups: 8, head_dim: 64 },
  addPairs(config, pairs) {
    addStatePairs(config, pairs);
    const inner = config.count("expand") * config.width;
    pairs.counts({
      "ssm.inner_size": inner,
      "ssm.time_step_rank": inner / config.count("head_dim"),
      "ssm.group_count": config.count("n_groups"),
    });
    for (const key of ["attention.key_length", "attention.value_length"]) pairs.remove(key);
  },
  tensors: { ...common, ...mamba2State("layers.{l}.mixer", (config) => config.count("n_groups")) },
};
