// Gemma 4: an image encoder, and in smaller models an audio encoder. The matrices of both may clamp their inputs and products.
import type { Change, TensorTable } from "../architectures/architecture.ts";
import type { Pairs } from "../pairs.ts";
import { finite, reshaped, softplus, swapped } from "../row-changes.ts";
import type { AudioClass, VisionClass, VisionConfigs } from "./vision-class.ts";

/** Required key of a projector file; the encoder does not use it. */
export const gemma4ImageSize = 224;
/** Images are not normalised (do_normalize), so the config's mean and deviation have no meaning. */
export const gemma4Images = { image_mean: [0, 0, 0], image_std: [1, 1, 1] };
const mergeSide = 3;
const ropeBase = 100;
/** Suffixes of the clamp ranges of a matrix. */
const rangeNames = ["input_min", "input_max", "output_min", "output_max"];

/** Ranges that were never set are infinite. */
const withoutInfinities: Change = ({ rows, shape }) => ({ rows: finite(rows), shape });

/** Returns the tensors of a matrix that clamps its inputs and products. */
function clamped(from: string, to: string): TensorTable {
  const ranges = rangeNames.map((name) => [`${from}.${name}`, { to, suffix: `.${name}`, change: withoutInfinities }]);
  return { [`${from}.linear`]: to, ...Object.fromEntries(ranges) };
}

/** Orders the pixels of a patch by channel; in the checkpoint, the three channels of a pixel follow one another. */
const patchKernel: Change = ({ rows, shape }) => {
  const [columns = 0, width = 0] = shape;
  const side = Math.sqrt(columns / 3);
  const byChannel = swapped(reshaped(rows, 1), { x: side ** 2, y: 3 });
  return { rows: reshaped(byChannel, side), shape: [side, side, 3, width] };
};

/** Drops the input dimension of a depthwise kernel, which is 1. */
const depthwiseKernel: Change = ({ rows, shape }) => ({ rows, shape: [shape[0] ?? 0, shape[2] ?? 0] });

const withSoftplus: Change = ({ rows, shape }) => ({ rows: softplus(rows), shape });

const audioFeedForward = (number: 1 | 2): TensorTable => {
  const [from, suffix] = [`layers.{l}.feed_forward${number}`, number === 1 ? "" : "_1"];
  return {
    [`${from}.pre_layer_norm`]: `a.blk.{l}.ffn_norm${suffix}`,
    ...clamped(`${from}.ffw_layer_1`, `a.blk.{l}.ffn_up${suffix}`),
    ...clamped(`${from}.ffw_layer_2`, `a.blk.{l}.ffn_down${suffix}`),
    [`${from}.post_layer_norm`]: `a.blk.{l}.ffn_post_norm${suffix}`,
  };
};

const gemma4Audio: AudioClass = {
  name: "gemma4a",
  defaults: {
    ...{ hidden_size: 1024, num_hidden_layers: 12, num_attention_heads: 8, hidden_act: "silu", residual_weight: 0.5 },
    ...{ attention_chunk_size: 12, attention_context_left: 13, attention_context_right: 0, attention_logit_cap: 50 },
    ...{ input_feat_size: 128, rms_norm_eps: 1e-6 },
  },
  prefixes: ["model.", "audio_tower."],
  tensors: {
    "subsample_conv_projection.layer0.conv": "a.conv1d.0",
    "subsample_conv_projection.layer0.norm": "a.conv1d.0.norm",
    "subsample_conv_projection.layer1.conv": "a.conv1d.1",
    "subsample_conv_projection.layer1.norm": "a.conv1d.1.norm",
    "subsample_conv_projection.input_proj_linear": "a.input_projection",
    ...audioFeedForward(1),
    "layers.{l}.norm_pre_attn": "a.blk.{l}.attn_pre_norm",
    ...clamped("layers.{l}.self_attn.q_proj", "a.blk.{l}.attn_q"),
    ...clamped("layers.{l}.self_attn.k_proj", "a.blk.{l}.attn_k"),
    ...clamped("layers.{l}.self_attn.v_proj", "a.blk.{l}.attn_v"),
    ...clamped("layers.{l}.self_attn.post", "a.blk.{l}.attn_out"),
    "layers.{l}.self_attn.relative_k_proj": "a.blk.{l}.attn_k_rel",
    "layers.{l}.self_attn.per_dim_scale": { to: "a.blk.{l}.per_dim_scale", change: withSoftplus },
    "layers.{l}.norm_post_attn": "a.blk.{l}.attn_post_norm",
    // In projector files, the names of these two norms are swapped.
    "layers.{l}.lconv1d.pre_layer_norm": "a.blk.{l}.conv_norm",
    "layers.{l}.lconv1d.conv_norm": "a.blk.{l}.norm_conv",
    ...clamped("layers.{l}.lconv1d.linear_start", "a.blk.{l}.conv_pw1"),
    "layers.{l}.lconv1d.depthwise_conv1d": { to: "a.blk.{l}.conv_dw", change: depthwiseKernel },
    ...clamped("layers.{l}.lconv1d.linear_end", "a.blk.{l}.conv_pw2"),
    ...audioFeedForward(2),
    "layers.{l}.norm_out": "a.blk.{l}.ln2",
    output_proj: "a.pre_encode.out",
    "embed_audio.embedding_projection": "mm.a.input_projection",
  },
  addPairs(encoder, pairs) {
    encoder.mustBe("hidden_act", "silu");
    encoder.mustBe("residual_weight", 0.5);
    // 13 = the position itself and 12 before it; transformers masks the farthest, so 11 remain.
    encoder.mustBe("attention_context_left", 13);
    encoder.mustBe("attention_context_right", 0);
    encoder.mustBe("attention_chunk_size", 12);
    encoder.mustBe("attention_logit_cap", 50);
    encoder.mustBe("rms_norm_eps", 1e-6);
    pairs.counts({ feed_forward_length: 4 * encoder.width, num_mel_bins: encoder.count("input_feat_size") });
  },
};

/** Adds the number of patches per embedding, and the number of pixels of the largest image. */
export function addGemma4Sizes({ encoder, images }: VisionConfigs, pairs: Pairs): void {
  const side = encoder.count("pooling_kernel_size");
  const unit = encoder.count("patch_size") * side;
  pairs.counts({
    "projector.scale_factor": side,
    image_max_pixels: images.countOr(280, "max_soft_tokens") * unit ** 2,
  });
}

export const gemma4Vision: VisionClass = {
  name: "gemma4v",
  classes: ["Gemma4ForConditionalGeneration"],
  defaults: {
    ...{ hidden_size: 768, intermediate_size: 3072, num_hidden_layers: 16, num_attention_heads: 12, patch_size: 16 },
    ...{ hidden_activation: "gelu_pytorch_tanh", rms_norm_eps: 1e-6, pooling_kernel_size: mergeSide },
  },
  imageFields: gemma4Images,
  prefixes: ["model.", "vision_tower."],
  tensors: {
    "patch_embedder.input_proj": { to: "v.patch_embd", change: patchKernel },
    "patch_embedder.position_embedding_table": "v.position_embd",
    "encoder.layers.{l}.input_layernorm": "v.blk.{l}.ln1",
    ...clamped("encoder.layers.{l}.self_attn.q_proj", "v.blk.{l}.attn_q"),
    ...clamped("encoder.layers.{l}.self_attn.k_proj", "v.blk.{l}.attn_k"),
    ...clamped("encoder.layers.{l}.self_attn.v_proj", "v.blk.{l}.attn_v"),
    ...clamped("encoder.layers.{l}.self_attn.o_proj", "v.blk.{l}.attn_out"),
    "encoder.layers.{l}.self_attn.q_norm": "v.blk.{l}.attn_q_norm",
    "encoder.layers.{l}.self_attn.k_norm": "v.blk.{l}.attn_k_norm",
    "encoder.layers.{l}.post_attention_layernorm": "v.blk.{l}.attn_post_norm",
    "encoder.layers.{l}.pre_feedforward_layernorm": "v.blk.{l}.ln2",
    ...clamped("encoder.layers.{l}.mlp.gate_proj", "v.blk.{l}.ffn_gate"),
    ...clamped("encoder.layers.{l}.mlp.up_proj", "v.blk.{l}.ffn_up"),
    ...clamped("encoder.layers.{l}.mlp.down_proj", "v.blk.{l}.ffn_down"),
    "encoder.layers.{l}.post_feedforward_layernorm": "v.blk.{l}.ffn_post_norm",
    std_bias: { to: "v.std_bias", suffix: "" },
    std_scale: { to: "v.std_scale", suffix: "" },
    "embed_vision.embedding_projection": "mm.input_projection",
  },
  encoderFields({ encoder, images }) {
    images.mustBe("do_normalize", false);
    const { heads, width } = encoder;
    encoder.mustBe("head_dim", width / heads);
    encoder.mustBe("num_key_value_heads", heads);
    const { rope_theta: theta = ropeBase } = encoder.object("rope_parameters") ?? {};
    if (theta !== ropeBase)
      throw encoder.unsupported("vision_config.rope_parameters.rope_theta", theta, String(ropeBase));
    const [activation, epsilon] = [encoder.value("hidden_activation"), encoder.value("rms_norm_eps")];
    return { image_size: gemma4ImageSize, hidden_act: activation, layer_norm_eps: epsilon };
  },
  addPairs: addGemma4Sizes,
  audio: gemma4Audio,
};
