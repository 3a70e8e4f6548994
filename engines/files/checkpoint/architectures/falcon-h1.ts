// Falcon-H1: attention and a state space (Mamba 2) in parallel. The multipliers in the config are folded into the weights.
import type { Config } from "../config.ts";
import { ropeSettings } from "../rope.ts";
import { joined, scaled, sliced } from "../row-changes.ts";
import type { Change, CheckpointArchitecture } from "./architecture.ts";
import { both, column, grouped, minusExp, squeezed } from "./changes.ts";

/** Returns a change that multiplies a weight by the config fields `names`; `name.2` is element 2 of a list. */
function times(...names: readonly string[]): Change {
  return ({ rows, shape }, config) => {
    const factor = names.reduce((product, name) => product * multiplier(config, name), 1);
    return { rows: scaled(rows, factor), shape };
  };
}

function multiplier(config: Config, name: string): number {
  const [field = "", index] = name.split(".");
  if (index === undefined) return config.numberOr(1, field);
  return config.numbers(field)?.[Number(index)] ?? 1;
}

interface StateSizes {
  readonly inner: number;
  readonly groups: number;
  readonly state: number;
  readonly headLength: number;
}

function stateSizes(config: Config): StateSizes {
  return {
    inner: config.count("mamba_d_ssm"),
    groups: config.count("mamba_n_groups"),
    state: config.count("mamba_d_state"),
    headLength: config.count("mamba_d_head"),
  };
}

/**
 * Scales the input projection of the state space. Its rows consist of five parts, each with its own factor in
 * `ssm_multipliers`.
 */
const stateInput: Change = ({ rows, shape }, config) => {
  const { inner, groups, state } = stateSizes(config);
  const sizes = [inner, inner, groups * state, groups * state];
  const last = rows.rows - sizes.reduce((sum, size) => sum + size, 0);
  let first = 0;
  const parts = [...sizes, last].map((size, i) => {
    const part = sliced(rows, first, size);
    first += size;
    return scaled(part, multiplier(config, "ssm_in_multiplier") * multiplier(config, `ssm_multipliers.${i}`));
  });
  return { rows: joined(parts), shape };
};

export const falconH1: CheckpointArchitecture = {
  name: "falcon-h1",
  classes: ["FalconH1ForCausalLM"],
  defaults: {
    rms_norm_eps: 1e-5,
    mamba_d_conv: 4,
    mamba_d_head: 64,
    mamba_d_state: 256,
    mamba_n_groups: 1,
    hidden_act: "silu",
  },
  addPairs(config, pairs) {
    config.mustBe("hidden_act", "silu");
    const { inner, groups, state, headLength } = stateSizes(config);
    pairs.counts({
      vocab_size: config.count("vocab_size"),
      "ssm.conv_kernel": config.count("mamba_d_conv"),
      "ssm.inner_size": inner,
      "ssm.state_size": state,
      "ssm.time_step_rank": Math.floor(inner / headLength),
      "ssm.group_count": groups,
      "attention.key_length": config.headLength,
      "attention.value_length": config.headLength,
    });
    pairs.floats({ "rope.freq_base": ropeSettings(config).main.numberOr(100_000, "rope_theta") });
  },
  tensors: {
    embed_tokens: { to: "token_embd", change: times("embedding_multiplier") },
    lm_head: { to: "output", change: times("lm_head_multiplier") },
    final_layernorm: "output_norm",
    "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
    "layers.{l}.self_attn.q_proj": { to: "blk.{l}.attn_q", change: times("attention_in_multiplier") },
    "layers.{l}.self_attn.k_proj": {
      to: "blk.{l}.attn_k",
      change: times("attention_in_multiplier", "key_multiplier"),
    },
    "layers.{l}.self_attn.v_proj": { to: "blk.{l}.attn_v", change: times("attention_in_multiplier") },
    "layers.{l}.self_attn.o_proj": { to: "blk.{l}.attn_output", change: times("attention_out_multiplier") },
    "layers.{l}.mamba.in_proj": { to: "blk.{l}.ssm_in", change: stateInput },
    "layers.{l}.mamba.conv1d.weight": { to: "blk.{l}.ssm_conv1d", change: squeezed },
    "layers.{l}.mamba.conv1d.bias": "blk.{l}.ssm_conv1d",
    "layers.{l}.mamba.dt_bias": { to: "blk.{l}.ssm_dt", suffix: ".bias" },
    "layers.{l}.mamba.A_log": { to: "blk.{l}.ssm_a", change: both(column, minusExp), suffix: "" },
    "layers.{l}.mamba.D": { to: "blk.{l}.ssm_d", change: column, suffix: "" },
    "layers.{l}.mamba.norm": { to: "blk.{l}.ssm_norm", change: grouped((config) => stateSizes(config).groups) },
    "layers.{l}.mamba.out_proj": { to: "blk.{l}.ssm_out", change: times("ssm_out_multiplier") },
    // The engines expect this norm's name without a suffix.
    "layers.{l}.pre_ff_layernorm": { to: "blk.{l}.ffn_norm", suffix: "" },
    "layers.{l}.feed_forward.gate_proj": { to: "blk.{l}.ffn_gate", change: times("mlp_multipliers.0") },
    "layers.{l}.feed_forward.up_proj": "blk.{l}.ffn_up",
    "layers.{l}.feed_forward.down_proj": { to: "blk.{l}.ffn_down", change: times("mlp_multipliers.1") },
  },
};
