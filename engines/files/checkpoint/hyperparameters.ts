// Hyperparameters of a checkpoint as GGUF key/value pairs: those that most architectures have. The file of an architecture adds further
// pairs or replaces some of these.
import type { Config } from "./config.ts";
import type { Pairs } from "./pairs.ts";
import { addRope } from "./rope.ts";

/** GGUF numbers of the gating functions, which turn a router's output into expert weights. */
export const gatingFunctions = { softmax: 1, sigmoid: 2, sqrtsoftplus: 4 } as const;

const contextFields = [
  ...["max_position_embeddings", "n_ctx", "n_positions", "max_length", "max_sequence_length", "model_max_length"],
];
const feedForwardFields = [
  ...["prefix_dense_intermediate_size", "dense_intermediate_size", "intermediate_size", "n_inner", "hidden_dim"],
];

export function addHyperparameters(config: Config, pairs: Pairs): void {
  pairs.counts({
    block_count: config.layers,
    context_length: config.countOr(undefined, ...contextFields),
    embedding_length: config.width,
    "attention.head_count": config.heads,
    "attention.head_count_kv": config.countOr(undefined, "num_key_value_heads", "n_kv_heads"),
    "attention.key_length": config.countOr(undefined, "head_dim"),
    "attention.value_length": config.countOr(undefined, "head_dim"),
  });
  addFeedForward(config, pairs);
  if (!config.truth(true, "is_causal")) pairs.truth("attention.causal", false);
  addRope(config, pairs);
  pairs.floats({
    "attention.layer_norm_rms_epsilon": config.numberOr(undefined, "rms_norm_eps", "norm_eps"),
    "attention.layer_norm_epsilon": config.numberOr(
      undefined,
      ...["layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"],
    ),
  });
  addExperts(config, pairs);
}

/** Adds the feed-forward length: one number, or a list if the config has one length per layer. */
function addFeedForward(config: Config, pairs: Pairs): void {
  const lengths = config.value(...feedForwardFields);
  if (Array.isArray(lengths)) {
    pairs.list("feed_forward_length", "i32", config.counts("intermediate_size", config.layers));
  } else pairs.counts({ feed_forward_length: config.countOr(undefined, ...feedForwardFields) });
}

function addExperts(config: Config, pairs: Pairs): void {
  pairs.counts({
    expert_count: config.countOr(undefined, "num_local_experts", "num_experts", "n_routed_experts"),
    expert_used_count: config.countOr(undefined, ...["num_experts_per_tok", "num_experts_per_token", "top_k_experts"]),
    expert_group_count: config.countOr(undefined, "n_group"),
    expert_group_used_count: config.countOr(undefined, "topk_group"),
  });
  const field = ["score_function", "scoring_func", "score_func", "moe_router_activation"].find(
    (name) => config.value(name) !== undefined,
  );
  if (field === undefined) return;
  const given = config.text(field) as string;
  const known = Object.keys(gatingFunctions);
  if (!known.includes(given)) throw config.unsupported(field, given, known.join(", "));
  pairs.counts({ expert_gating_func: gatingFunctions[given as keyof typeof gatingFunctions] });
}
