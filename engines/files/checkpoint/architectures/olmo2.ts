// OLMo 2 and 3: norms after attention and feed-forward; OLMo 3 has sliding windows.
import type { CheckpointArchitecture } from "./architecture.ts";
import { attention, feedForward, headNorms, outerTensors } from "./changes.ts";

export const olmo2: CheckpointArchitecture = {
  name: "olmo2",
  classes: ["Olmo2ForCausalLM", "Olmo3ForCausalLM"],
  defaults: { rms_norm_eps: 1e-5 },
  addPairs(config, pairs) {
    const window = config.countOr(0, "sliding_window");
    if (window === 0) return;
    const types = config.layerTexts("layer_types", config.layers);
    pairs.counts({ "attention.sliding_window": window });
    pairs.truths(
      "attention.sliding_window_pattern",
      types?.map((type) => type === "sliding_attention") ??
        Array.from({ length: config.layers }, (_, layer) => (layer + 1) % 4 !== 0),
    );
  },
  tensors: {
    ...outerTensors,
    ...attention,
    ...headNorms,
    ...feedForward,
    "layers.{l}.post_attention_layernorm": "blk.{l}.post_attention_norm",
    "layers.{l}.post_feedforward_layernorm": "blk.{l}.post_ffw_norm",
  },
};
