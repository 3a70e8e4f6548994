// LLaVA 1.5: a CLIP encoder, of which the states before the last layers are taken, and two matrices.
import type { Config } from "../config.ts";
import { encoderPrefixes, encoderTensors } from "./siglip.ts";
import type { VisionClass } from "./vision-class.ts";

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
    // The official class has this name.
    pre_layrnorm: "v.pre_ln",
    post_layernorm: null,
    "multi_modal_projector.linear_1": "mm.0",
    "multi_modal_projector.linear_2": "mm.2",
  },
  encoderFields({ model, encoder }) {
    if (encoder.value("model_type") !== undefined) encoder.mustBe("model_type", "clip_vision_model");
    model.mustBe("vision_feature_select_strategy", "default");
    model.mustBe("projector_hidden_act", "gelu");
    return { num_hidden_layers: usedLayers(model, encoder) };
  },
  addPairs({ encoder }, pairs) {
    // Encoders of LLaVA leave out the last layer that the key counts.
    pairs.counts({ block_count: encoder.layers + 1 });
  },
};

/** Number of layers before the states that are taken: those of layer `vision_feature_layer`, counted from the end. */
function usedLayers(model: Config, encoder: Config): number {
  const layer = model.numberOr(-2, "vision_feature_layer");
  const used = layer < 0 ? encoder.layers + 1 + layer : layer;
  if (Number.isInteger(used) && used >= 1 && used <= encoder.layers) return used;
  throw model.invalid("vision_feature_layer", layer, `a layer of ${encoder.layers}`);
}
