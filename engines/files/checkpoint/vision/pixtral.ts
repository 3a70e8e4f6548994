// Pixtral's encoder: Mistral 3, and Pixtral in the format of LLaVA. Each row of an image ends with the embedding of a text token.
import type { Change, TensorTable } from "../architectures/architecture.ts";
import { keyOrder, queryOrder } from "../architectures/changes.ts";
import type { Pairs } from "../pairs.ts";
import { ropeSettings } from "../rope.ts";
import { sliced } from "../row-changes.ts";
import { usedLayers } from "./llava.ts";
import { encoderPrefixes } from "./siglip.ts";
import type { VisionClass, VisionConfigs } from "./vision-class.ts";

const ropeBase = 10_000;

const rowEnd: Change = ({ rows, shape }, config) => {
  return { rows: sliced(rows, config.countOr(0, "row_end_id"), 1), shape: [shape[0] ?? 1] };
};

const tensors: TensorTable = {
  patch_conv: "v.patch_embd",
  ln_pre: "v.pre_ln",
  "transformer.layers.{l}.attention_norm": "v.blk.{l}.ln1",
  "transformer.layers.{l}.ffn_norm": "v.blk.{l}.ln2",
  "transformer.layers.{l}.attention.q_proj": { to: "v.blk.{l}.attn_q", change: queryOrder },
  "transformer.layers.{l}.attention.k_proj": { to: "v.blk.{l}.attn_k", change: keyOrder },
  "transformer.layers.{l}.attention.v_proj": "v.blk.{l}.attn_v",
  "transformer.layers.{l}.attention.o_proj": "v.blk.{l}.attn_out",
  "transformer.layers.{l}.feed_forward.gate_proj": "v.blk.{l}.ffn_gate",
  "transformer.layers.{l}.feed_forward.up_proj": "v.blk.{l}.ffn_up",
  "transformer.layers.{l}.feed_forward.down_proj": "v.blk.{l}.ffn_down",
  "multi_modal_projector.norm": "mm.input_norm",
  "multi_modal_projector.patch_merger.merging_layer": "mm.patch_merger",
  "multi_modal_projector.linear_1": "mm.1",
  "multi_modal_projector.linear_2": "mm.2",
  embed_tokens: { to: "v.token_embd.img_break", suffix: "", change: rowEnd },
};

const pixtral = {
  name: "pixtral",
  defaults: {
    ...{ hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 24, num_attention_heads: 16 },
    ...{ image_size: 1024, patch_size: 16, hidden_act: "gelu", layer_norm_eps: 1e-5 },
  },
  prefixes: encoderPrefixes,
  leavesOutExtraLayers: true,
  tensors,
  rowEnd: "[IMG_BREAK]",
} as const;

/** Pixtral in the format of LLaVA: each patch becomes one embedding. */
export const pixtralVision: VisionClass = {
  ...pixtral,
  classes: ["LlavaForConditionalGeneration"],
  encoderTypes: ["pixtral"],
  encoderFields({ model, encoder }) {
    model.mustBe("vision_feature_select_strategy", "full");
    model.mustBe("projector_hidden_act", "gelu");
    return { num_hidden_layers: usedLayers(model, encoder, -2) };
  },
  addPairs: (configs, pairs) => addPixtralPairs(configs, pairs, 1),
};

export const mistral3Vision: VisionClass = {
  ...pixtral,
  classes: ["Mistral3ForConditionalGeneration"],
  encoderFields({ model, encoder }) {
    model.mustBe("projector_hidden_act", "gelu");
    return { num_hidden_layers: usedLayers(model, encoder, -1) };
  },
  addPairs: (configs, pairs) => addPixtralPairs(configs, pairs, configs.model.countOr(2, "spatial_merge_size")),
};

function addPixtralPairs({ encoder, images }: VisionConfigs, pairs: Pairs, mergeSide: number): void {
  ropeSettings(encoder).main.mustBe("rope_theta", ropeBase);
  const longest = images.object("size")?.longest_edge ?? encoder.count("image_size");
  if (typeof longest !== "number") throw images.invalid("size", longest, "an object with a number longest_edge");
  pairs.counts({ spatial_merge_size: mergeSide, preproc_image_size: longest, image_max_pixels: longest ** 2 });
}
