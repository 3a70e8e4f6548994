// OLMo 1: Llama with layer norms that have no weights.
import type { CheckpointArchitecture } from "./architecture.ts";
import { feedForward, turnedAttention } from "./changes.ts";

export const olmo: CheckpointArchitecture = {
  name: "olmo",
  classes: ["OlmoForCausalLM"],
  defaults: { hidden_act: "silu" },
  addPairs(config, pairs) {
    config.mustBe("hidden_act", "silu");
    pairs.floats({
      "attention.layer_norm_epsilon": 1e-5,
      "attention.clamp_kqv": config.numberOr(undefined, "clip_qkv"),
    });
  },
  tensors: { embed_tokens: "token_embd", lm_head: "output", ...turnedAttention, ...feedForward },
};
