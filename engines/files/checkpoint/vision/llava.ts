// LLaVA 1.5 and LLaVA-NeXT (1.6): a CLIP encoder whose last layers are skipped, and a projector of two matrices.
import type { Config } from "../config.ts";
import { encoderPrefixes, encoderTensors } from "./siglip.ts";
import type { VisionClass, VisionConfigs } from "./vision-class.ts";

export const llavaVision: VisionClass = {
  name: "mlp",
  classes: ["LlavaForConditionalGeneration"],
  defaults: {
    ...{ hidden_size: 768, intermediate_size: 3072, num_hidden_layers: 12, num_attention_heads: 12 },
    ...{ image_size: 224, patch_size: 32, hidden_act: "quick_gelu", layer_norm_eps: 1e-5 },
  },
  prefixes: encoderPrefixes,
  leavesOutExtraLayers: true,
  tensors: {
    ...encoderTensors,
    "embeddings.class_embedding": { to: "v.class_embd", suffix: "" },
    // The misspelled name is that of the official class.
    pre_layrnorm: "v.pre_ln",
    post_layernorm: null,
    "multi_modal_projector.linear_1": "mm.0",
    "multi_modal_projector.linear_2": "mm.2",
  },
  encoderFields({ model, encoder }) {
    if (encoder.value("model_type") !== undefined) encoder.mustBe("model_type", "clip_vision_model");
    model.mustBe("vision_feature_select_strategy", "default");
    model.mustBe("projector_hidden_act", "gelu");
    return { num_hidden_layers: usedLayers(model, encoder, -2) };
  },
  addPairs({ encoder }, pairs) {
    // The count is one too high on purpose, because the engines skip the last layer that this key counts.
    pairs.counts({ block_count: encoder.layers + 1 });
  },
};

/** LLaVA-NeXT: a large image is cut into a grid of tiles. The row separator (image_newline) is not used. */
export const llavaNextVision: VisionClass = {
  ...llavaVision,
  classes: ["LlavaNextForConditionalGeneration"],
  addPairs(configs, pairs) {
    llavaVision.addPairs(configs, pairs);
    pairs.list("image_grid_pinpoints", "i32", gridSizes(configs));
  },
};

/** Returns the width and height of each grid, one after the other. The config has the height first. */
function gridSizes({ model, images }: VisionConfigs): number[] {
  const name = "image_grid_pinpoints";
  const given = model.value(name) ?? images.value(name);
  const isSize = (one: unknown) => Array.isArray(one) && one.length === 2 && one.every(Number.isInteger);
  if (Array.isArray(given) && given.every(isSize)) return (given as number[][]).flatMap((size) => size.toReversed());
  throw model.invalid(name, given, "a list of pairs of whole numbers");
}

/**
 * Returns the number of encoder layers to compute. The last one is `vision_feature_layer`, counted from the end, whose hidden states are
 * used. `standard`: the value if config.json does not state it.
 */
export function usedLayers(model: Config, encoder: Config, standard: number): number {
  const layer = model.numberOr(standard, "vision_feature_layer");
  const used = layer < 0 ? encoder.layers + 1 + layer : layer;
  if (Number.isInteger(used) && used >= 1 && used <= encoder.layers) return used;
  throw model.invalid("vision_feature_layer", layer, `a layer of ${encoder.layers}`);
}
