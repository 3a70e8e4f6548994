// Models with a SigLIP encoder: Gemma 3 and Idefics 3 (SmolVLM).
import type { TensorTable } from "../architectures/architecture.ts";
import { plusOne } from "../architectures/changes.ts";
import type { VisionClass } from "./vision-class.ts";

/** Prefixes of the names of the encoder's tensors, in the order in which they occur in a name. */
export const encoderPrefixes = ["model.", "vision_tower.", "vision_model."];

/** Tensors of the encoders CLIP and SigLIP. */
export const encoderTensors: TensorTable = {
  "embeddings.patch_embedding": "v.patch_embd",
  "embeddings.position_embedding": "v.position_embd",
  "embeddings.position_ids": null,
  "encoder.layers.{l}.layer_norm1": "v.blk.{l}.ln1",
  "encoder.layers.{l}.layer_norm2": "v.blk.{l}.ln2",
  "encoder.layers.{l}.self_attn.q_proj": "v.blk.{l}.attn_q",
  "encoder.layers.{l}.self_attn.k_proj": "v.blk.{l}.attn_k",
  "encoder.layers.{l}.self_attn.v_proj": "v.blk.{l}.attn_v",
  "encoder.layers.{l}.self_attn.out_proj": "v.blk.{l}.attn_out",
  "encoder.layers.{l}.mlp.fc1": "v.blk.{l}.ffn_up",
  "encoder.layers.{l}.mlp.fc2": "v.blk.{l}.ffn_down",
};

const siglip = {
  ...{ hidden_size: 768, intermediate_size: 3072, num_hidden_layers: 12, num_attention_heads: 12 },
  ...{ image_size: 224, patch_size: 16, hidden_act: "gelu_pytorch_tanh", layer_norm_eps: 1e-6 },
};

export const gemma3Vision: VisionClass = {
  name: "gemma3",
  classes: ["Gemma3ForConditionalGeneration"],
  defaults: siglip,
  prefixes: encoderPrefixes,
  tensors: {
    ...encoderTensors,
    post_layernorm: "v.post_ln",
    "multi_modal_projector.mm_input_projection_weight": "mm.input_projection",
    "multi_modal_projector.mm_soft_emb_norm": { to: "mm.soft_emb_norm", change: plusOne },
  },
  addPairs({ model, encoder }, pairs) {
    const side = Math.sqrt(model.countOr(256, "mm_tokens_per_image"));
    const mergeSide = encoder.count("image_size") / encoder.count("patch_size") / side;
    pairs.counts({ "projector.scale_factor": mergeSide });
  },
};

export const idefics3Vision: VisionClass = {
  name: "idefics3",
  classes: ["Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration"],
  defaults: {
    ...siglip,
    ...{ hidden_size: 1152, num_attention_heads: 16, patch_size: 32 },
  },
  prefixes: encoderPrefixes,
  tensors: {
    ...encoderTensors,
    post_layernorm: "v.post_ln",
    "connector.modality_projection.proj": "mm.model.fc",
  },
  addPairs({ model, encoder, images }, pairs) {
    const longest = images.object("size")?.longest_edge ?? 4 * encoder.count("image_size");
    if (typeof longest !== "number") throw images.invalid("size", longest, "an object with a number longest_edge");
    pairs.counts({
      "projector.scale_factor": model.countOr(2, "scale_factor"),
      preproc_image_size: longest,
    });
  },
};
