// Nemotron-H, Nemotron Nano 2 and 3: each layer is either a state space (Mamba 2), attention without RoPE, a feed-forward with squared
// ReLU, or a mixture of experts.
import type { Config, JsonObject } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { mamba2State } from "./mamba.ts";

type Kind = "state" | "attention" | "feedForward" | "experts";

/** Kinds of layers by their names: words in layers_block_type, letters in hybrid_override_pattern. */
const kinds: Readonly<Record<string, Kind>> = {
  ...{ mamba: "state", linear_attention: "state", M: "state" },
  ...{ attention: "attention", full_attention: "attention", "*": "attention" },
  ...{ mlp: "feedForward", "-": "feedForward" },
  ...{ moe: "experts", E: "experts" },
};

function kindsOf(config: Config): readonly Kind[] {
  const field = config.value("layers_block_type") === undefined ? "hybrid_override_pattern" : "layers_block_type";
  const value = config.value(field);
  const names: readonly unknown[] = typeof value === "string" ? [...value] : Array.isArray(value) ? value : [];
  const found = names.map((name) => (typeof name === "string" && Object.hasOwn(kinds, name) ? kinds[name] : undefined));
  const known = found.filter((kind) => kind !== undefined);
  if (known.length > 0 && known.length === found.length) return known;
  throw config.invalid(field, value, `the kinds of the layers (${Object.keys(kinds).join(", ")})`);
}

/** Counts the layers, because newer configs list them but do not state their number. */
const counted = (config: Config): JsonObject => ({
  num_hidden_layers: kindsOf(config).length,
  norm_eps: config.value("layer_norm_epsilon") ?? 1e-5,
});

function addPairs(config: Config, pairs: Pairs): void {
  config.mustBe("mlp_hidden_act", "relu2");
  config.mustBe("mamba_hidden_act", "silu");
  const layers = kindsOf(config);
  const heads = config.count("mamba_num_heads");
  const length = config.count("head_dim", "attention_head_dim");
  pairs.counts({
    vocab_size: config.count("vocab_size"),
    "ssm.conv_kernel": config.count("conv_kernel"),
    "ssm.state_size": config.count("ssm_state_size"),
    "ssm.group_count": config.count("n_groups"),
    "ssm.inner_size": heads * config.count("mamba_head_dim"),
    "ssm.time_step_rank": heads,
    "attention.key_length": length,
    "attention.value_length": length,
  });
  const lengths = {
    feedForward: config.countOr(0, "intermediate_size"),
    experts: config.countOr(0, "moe_intermediate_size"),
  };
  const listed = (values: Partial<Record<Kind, number>>) => layers.map((kind) => values[kind] ?? 0);
  pairs.list("feed_forward_length", "i32", listed(lengths));
  // 0 heads mark a layer without attention.
  pairs.list("attention.head_count_kv", "i32", listed({ attention: config.kvHeads }));
  pairs.truth("rope.scaling.finetuned", false);
}

const common: TensorTable = {
  embeddings: "token_embd",
  norm_f: "output_norm",
  lm_head: "output",
  "layers.{l}.norm": "blk.{l}.attn_norm",
  ...mamba2State("layers.{l}.mixer", (config) => config.count("n_groups")),
  "layers.{l}.mixer.q_proj": "blk.{l}.attn_q",
  "layers.{l}.mixer.k_proj": "blk.{l}.attn_k",
  "layers.{l}.mixer.v_proj": "blk.{l}.attn_v",
  "layers.{l}.mixer.o_proj": "blk.{l}.attn_output",
  "layers.{l}.mixer.up_proj": "blk.{l}.ffn_up",
  "layers.{l}.mixer.down_proj": "blk.{l}.ffn_down",
};

const defaults = { layer_norm_epsilon: 1e-5, mlp_hidden_act: "relu2", mamba_hidden_act: "silu" };
const hasExperts = (config: Config) => kindsOf(config).includes("experts");

export const nemotronHMoe: CheckpointArchitecture = {
  name: "nemotron_h_moe",
  classes: ["NemotronHForCausalLM"],
  applies: hasExperts,
  prefixes: ["backbone."],
  defaults: { ...defaults, norm_topk_prob: true, routed_scaling_factor: 1 },
  computedDefaults: counted,
  addPairs(config, pairs) {
    addPairs(config, pairs);
    if (kindsOf(config).includes("feedForward")) {
      throw config.unsupported("layers_block_type", "mlp and moe", "one of the two");
    }
    pairs.counts({
      expert_feed_forward_length: config.count("moe_intermediate_size"),
      expert_shared_feed_forward_length: config.count("moe_shared_expert_intermediate_size"),
      expert_shared_count: config.count("n_shared_experts"),
      moe_latent_size: config.countOr(undefined, "moe_latent_size"),
    });
    pairs.truth("expert_weights_norm", config.truth(true, "norm_topk_prob"));
    pairs.floats({ expert_weights_scale: config.number("routed_scaling_factor") });
  },
  tensors: {
    ...common,
    "layers.{l}.mixer.gate": "blk.{l}.ffn_gate_inp",
    "layers.{l}.mixer.gate.e_score_correction_bias": { to: "blk.{l}.exp_probs_b", suffix: ".bias" },
    "layers.{l}.mixer.experts.{e}.up_proj": "blk.{l}.ffn_up_exps",
    "layers.{l}.mixer.experts.{e}.down_proj": "blk.{l}.ffn_down_exps",
    "layers.{l}.mixer.experts.up_proj": "blk.{l}.ffn_up_exps",
    "layers.{l}.mixer.experts.down_proj": "blk.{l}.ffn_down_exps",
    "layers.{l}.mixer.shared_experts.up_proj": "blk.{l}.ffn_up_shexp",
    "layers.{l}.mixer.shared_experts.down_proj": "blk.{l}.ffn_down_shexp",
    "layers.{l}.mixer.fc1_latent_proj": "blk.{l}.ffn_latent_down",
    "layers.{l}.mixer.fc2_latent_proj": "blk.{l}.ffn_latent_up",
  },
};

export const nemotronH: CheckpointArchitecture = {
  name: "nemotron_h",
  classes: ["NemotronHForCausalLM"],
  prefixes: ["backbone."],
  defaults,
  computedDefaults: counted,
  addPairs(config, pairs) {
    addPairs(config, pairs);
    // The official Python class writes fields of experts even if the model has none.
    for (const key of ["count", "used_count", "group_count", "group_used_count"]) pairs.remove(`expert_${key}`);
  },
  tensors: common,
};
