// Qwen2-VL, Qwen2.5-VL and Qwen3-VL: a patch spans two frames; an image is used as both frames. 2 x 2 patches become one embedding.
import type { Change, TensorTable } from "../architectures/architecture.ts";
import { defaultStackedLayers } from "../architectures/qwen3vl.ts";
import type { Config, JsonObject } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import { picked } from "../row-changes.ts";
import { addPixelLimits } from "./pixel-limits.ts";
import type { VisionClass, VisionConfigs } from "./vision-class.ts";

const frames = 2;
const mergeSide = 2;
/** Image side in pixels that the file must state, although tiles may have any size. */
const imageSize = 560;
const layerNormEpsilon = 1e-6;
/** Side in pixels of the encoder's attention windows. */
const windowSide = 112;

const blocks: TensorTable = {
  "blocks.{l}.norm1": "v.blk.{l}.ln1",
  "blocks.{l}.norm2": "v.blk.{l}.ln2",
  "blocks.{l}.attn.qkv": "v.blk.{l}.attn_qkv",
  "blocks.{l}.attn.proj": "v.blk.{l}.attn_out",
};

const tensors: TensorTable = {
  "patch_embed.proj": [
    { to: "v.patch_embd", change: kernelOf(0) },
    { to: "v.patch_embd", change: kernelOf(1), suffix: ".weight.1" },
  ],
  ...blocks,
  "merger.ln_q": "v.post_ln",
  "merger.mlp.0": "mm.0",
  "merger.mlp.2": "mm.2",
};

const prefixes = ["model.", "visual."];

export const qwen2vlVision: VisionClass = {
  name: "qwen2vl_merger",
  classes: ["Qwen2VLForConditionalGeneration"],
  defaults: {
    ...{ depth: 32, embed_dim: 1280, mlp_ratio: 4, num_heads: 16, patch_size: 14, hidden_act: "quick_gelu" },
    ...{ spatial_merge_size: mergeSide, temporal_patch_size: frames },
  },
  prefixes,
  tensors: {
    ...tensors,
    "blocks.{l}.mlp.fc1": "v.blk.{l}.ffn_up",
    "blocks.{l}.mlp.fc2": "v.blk.{l}.ffn_down",
  },
  encoderFields(configs) {
    // The encoder's width is embed_dim, because hidden_size is the width of the text model.
    const width = configs.encoder.count("embed_dim");
    const feedForward = Math.trunc(width * configs.encoder.number("mlp_ratio"));
    return { ...fieldsOf(configs), hidden_size: width, intermediate_size: feedForward };
  },
  addPairs: addQwenPairs,
};

export const qwen25vlVision: VisionClass = {
  name: "qwen2.5vl_merger",
  classes: ["Qwen2_5_VLForConditionalGeneration"],
  defaults: {
    ...{ depth: 32, hidden_size: 3584, intermediate_size: 3420, num_heads: 16, patch_size: 14, hidden_act: "silu" },
    ...{ spatial_merge_size: mergeSide, temporal_patch_size: frames, window_size: windowSide },
    fullatt_block_indexes: [7, 15, 23, 31],
  },
  prefixes,
  tensors: {
    ...tensors,
    "blocks.{l}.mlp.gate_proj": "v.blk.{l}.ffn_gate",
    "blocks.{l}.mlp.up_proj": "v.blk.{l}.ffn_up",
    "blocks.{l}.mlp.down_proj": "v.blk.{l}.ffn_down",
  },
  encoderFields: fieldsOf,
  addPairs(configs, pairs) {
    addQwenPairs(configs, pairs);
    configs.encoder.mustBe("window_size", windowSide);
    pairs.counts({ n_wa_pattern: windowInterval(configs.encoder) });
  },
};

export const qwen3vlVision: VisionClass = {
  name: "qwen3vl_merger",
  classes: ["Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"],
  defaults: {
    ...{ depth: 27, hidden_size: 1152, intermediate_size: 4304, num_heads: 16, patch_size: 16 },
    ...{ spatial_merge_size: mergeSide, temporal_patch_size: frames, hidden_act: "gelu_pytorch_tanh" },
    deepstack_visual_indexes: defaultStackedLayers,
  },
  prefixes,
  tensors: {
    "patch_embed.proj": [
      { to: "v.patch_embd", change: kernelOf(0), only: ".weight" },
      { to: "v.patch_embd", change: kernelOf(1), only: ".weight", suffix: ".weight.1" },
      { to: "v.patch_embd", only: ".bias" },
    ],
    pos_embed: "v.position_embd",
    ...blocks,
    "blocks.{l}.mlp.linear_fc1": "v.blk.{l}.ffn_up",
    "blocks.{l}.mlp.linear_fc2": "v.blk.{l}.ffn_down",
    "merger.norm": "v.post_ln",
    "merger.linear_fc1": "mm.0",
    "merger.linear_fc2": "mm.2",
  },
  computedTensors(encoder) {
    const layers = encoder.numbers("deepstack_visual_indexes") ?? [];
    const named = layers.flatMap((layer, index) =>
      [
        ["norm", "norm"],
        ["linear_fc1", "fc1"],
        ["linear_fc2", "fc2"],
      ].map(([from, to]) => [`deepstack_merger_list.${index}.${from}`, `v.deepstack.${layer}.${to}`]),
    );
    return Object.fromEntries(named);
  },
  encoderFields: fieldsOf,
  addPairs: addQwenPairs,
};

/** Returns the 2D kernel of one frame from a 3D convolution kernel. */
function kernelOf(frame: number): Change {
  return ({ rows, shape }) => {
    const [width = 1, height = 1, depth = 1, channels = 1, kernels = 1] = shape;
    if (shape.length !== 5 || depth !== frames) throw new RangeError("a kernel of two frames was expected");
    return {
      rows: picked(rows, { period: frames * height, first: frame * height, count: height }),
      shape: [width, height, channels, kernels],
    };
  };
}

function fieldsOf({ encoder }: VisionConfigs): JsonObject {
  encoder.mustBe("temporal_patch_size", frames);
  encoder.mustBe("spatial_merge_size", mergeSide);
  return {
    num_hidden_layers: encoder.value("depth"),
    num_attention_heads: encoder.value("num_heads"),
    image_size: imageSize,
    layer_norm_eps: layerNormEpsilon,
  };
}

function addQwenPairs(configs: VisionConfigs, pairs: Pairs): void {
  pairs.counts({ spatial_merge_size: mergeSide });
  addPixelLimits(configs, pairs);
}

/** Returns n if every n-th layer attends to the whole image. */
function windowInterval(encoder: Config): number {
  const name = "fullatt_block_indexes";
  const whole = encoder.numbers(name) ?? [];
  const interval = (whole[0] ?? 0) + 1;
  const expected = Array.from({ length: Math.floor(encoder.layers / interval) }, (_, i) => (i + 1) * interval - 1);
  if (whole.length > 0 && whole.join() === expected.join()) return interval;
  throw encoder.unsupported(`vision_config.${name}`, whole, "layers at equal distances, the first one included");
}
