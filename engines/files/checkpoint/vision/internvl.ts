// InternVL in the format of transformers: layers with scales, and a class embedding at the first position.
import { squeezed } from "../architectures/changes.ts";
import type { Config } from "../config.ts";
import { encoderPrefixes } from "./siglip.ts";
import type { VisionClass } from "./vision-class.ts";

export const internvlVision: VisionClass = {
  name: "internvl",
  classes: ["InternVLForConditionalGeneration"],
  defaults: {
    ...{ hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 24, num_attention_heads: 16 },
    ...{ image_size: [448, 448], patch_size: [14, 14], hidden_act: "gelu", layer_norm_eps: 1e-6 },
  },
  prefixes: encoderPrefixes,
  tensors: {
    "embeddings.cls_token": { to: "v.class_embd", suffix: "", change: squeezed },
    "embeddings.position_embeddings": { to: "v.position_embd", change: squeezed },
    "embeddings.patch_embeddings.projection": "v.patch_embd",
    "encoder.layer.{l}.layernorm_before": "v.blk.{l}.ln1",
    "encoder.layer.{l}.layernorm_after": "v.blk.{l}.ln2",
    "encoder.layer.{l}.lambda_1": "v.blk.{l}.ls1",
    "encoder.layer.{l}.lambda_2": "v.blk.{l}.ls2",
    "encoder.layer.{l}.attention.q_proj": "v.blk.{l}.attn_q",
    "encoder.layer.{l}.attention.k_proj": "v.blk.{l}.attn_k",
    "encoder.layer.{l}.attention.v_proj": "v.blk.{l}.attn_v",
    "encoder.layer.{l}.attention.q_norm": "v.blk.{l}.attn_q_norm",
    "encoder.layer.{l}.attention.k_norm": "v.blk.{l}.attn_k_norm",
    "encoder.layer.{l}.attention.projection_layer": "v.blk.{l}.attn_out",
    "encoder.layer.{l}.mlp.fc1": "v.blk.{l}.ffn_up",
    "encoder.layer.{l}.mlp.fc2": "v.blk.{l}.ffn_down",
    "multi_modal_projector.layer_norm": "mm.model.mlp.0",
    "multi_modal_projector.linear_1": "mm.model.mlp.1",
    "multi_modal_projector.linear_2": "mm.model.mlp.3",
  },
  encoderFields({ model, encoder }) {
    model.mustBe("vision_feature_layer", -1);
    model.mustBe("projector_hidden_act", "gelu");
    return { image_size: sideOf(encoder, "image_size"), patch_size: sideOf(encoder, "patch_size") };
  },
  addPairs({ model, images }, pairs) {
    pairs.counts({
      "projector.scale_factor": 1 / model.numberOr(0.5, "downsample_ratio"),
      preproc_min_tiles: images.countOr(undefined, "min_patches"),
      preproc_max_tiles: images.countOr(undefined, "max_patches"),
    });
  },
};

/** Returns the side length of a square. The field is one number or a list of two equal numbers. */
function sideOf(encoder: Config, name: string): number {
  const value = encoder.value(name);
  const [side, other] = Array.isArray(value) ? value : [value, value];
  if (typeof side === "number" && side === other) return side;
  throw encoder.unsupported(`vision_config.${name}`, value, "squares");
}
