// Command R and its successors: attention and feed-forward run in parallel after one norm; the output matrix is the embedding.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { ropeSettings } from "../rope.ts";
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { attention, feedForward, headNorms } from "./changes.ts";
import { unusualSlides } from "./gemma2.ts";

function addCoherePairs(config: Config, pairs: Pairs): void {
  config.mustBe("tie_word_embeddings", true);
  pairs.floats({ logit_scale: config.number("logit_scale") });
  pairs.text("rope.scaling.type", "none");
}

const tensors: TensorTable = {
  embed_tokens: "token_embd",
  norm: "output_norm",
  lm_head: null,
  "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
  ...attention,
  ...feedForward,
};

export const commandR: CheckpointArchitecture = {
  name: "command-r",
  classes: ["CohereForCausalLM"],
  defaults: { layer_norm_eps: 1e-5, logit_scale: 0.0625, use_qk_norm: false },
  addPairs(config, pairs) {
    // The engines apply query and key norms only in models of 64 layers or more.
    config.mustBe("use_qk_norm", config.layers >= 64);
    addCoherePairs(config, pairs);
    // model_max_length is the trained length; max_position_embeddings is a shorter default.
    pairs.counts({ context_length: config.countOr(undefined, "model_max_length") });
  },
  tensors: { ...tensors, ...headNorms },
};

export const cohere2: CheckpointArchitecture = {
  name: "cohere2",
  classes: ["Cohere2ForCausalLM"],
  defaults: { layer_norm_eps: 1e-5, logit_scale: 0.0625, sliding_window: 4096 },
  addPairs(config, pairs) {
    addCoherePairs(config, pairs);
    const factor = config.numberOr(1, "rotary_pct") * ropeSettings(config).main.numberOr(1, "partial_rotary_factor");
    pairs.counts({
      "attention.sliding_window": config.count("sliding_window"),
      vocab_size: config.count("vocab_size"),
      "rope.dimension_count": Math.trunc(factor * config.headLength),
    });
    const slides = unusualSlides(config, 4);
    if (slides) pairs.truths("attention.sliding_window_pattern", slides);
  },
  tensors,
};
