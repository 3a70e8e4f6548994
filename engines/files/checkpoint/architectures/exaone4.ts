// EXAONE 4: norms after attention and feed-forward, and on queries and keys; sliding windows in the large model.
import type { CheckpointArchitecture } from "./architecture.ts";
import { llama3Tensors } from "./changes.ts";
import { unusualSlides } from "./gemma2.ts";
import { olmo2 } from "./olmo2.ts";

/** The engines apply sliding windows only in models with this number of layers. */
const layersWithWindows = 64;

export const exaone4: CheckpointArchitecture = {
  name: "exaone4",
  classes: ["Exaone4ForCausalLM"],
  defaults: { rms_norm_eps: 1e-5 },
  addPairs(config, pairs) {
    pairs.counts({ vocab_size: config.count("vocab_size") });
    const window = config.countOr(0, "sliding_window");
    const types = config.layerTexts("layer_types", config.layers);
    const slides = window > 0 && (types?.includes("sliding_attention") ?? true);
    if (slides !== (config.layers === layersWithWindows)) {
      throw config.unsupported("sliding_window", window, `windows in models of ${layersWithWindows} layers only`);
    }
    if (!slides) return;
    pairs.counts({ "attention.sliding_window": window });
    const unusual = unusualSlides(config, 4);
    if (unusual) pairs.truths("attention.sliding_window_pattern", unusual);
  },
  tensors: olmo2.tensors,
  addTensors: llama3Tensors,
};
