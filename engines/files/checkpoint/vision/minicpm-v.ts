// MiniCPM-V 2.5 and 2.6: a SigLIP encoder whose positions are spread over tiles of any size, and a resampler.
import type { Change, TensorTable } from "../architectures/architecture.ts";
import { part, turned } from "../architectures/changes.ts";
import { minicpmVersion } from "../architectures/minicpm-v.ts";
import { reshaped, sliced } from "../row-changes.ts";
import { encoderTensors } from "./siglip.ts";
import type { VisionClass } from "./vision-class.ts";

/** Number in projector files (clip.minicpmv_version) for each version of MiniCPM-V. */
const numbers = { "2.5": 2, "2.6": 3 } as const;

const names = ["q", "k", "v"];

/** Part `index` of `count` equal parts of a vector. */
function vectorPart(index: number, count: number): Change {
  return ({ rows, shape }) => {
    const length = (shape[0] ?? 1) / count;
    return { rows: sliced(reshaped(rows, length), index, 1), shape: [length] };
  };
}

const resampler: TensorTable = {
  "resampler.query": { to: "resampler.query", suffix: "" },
  "resampler.kv_proj": "resampler.kv",
  "resampler.attn.in_proj_weight": names.map((name, i) => ({ to: `resampler.attn.${name}`, change: part(i, 3) })),
  "resampler.attn.in_proj_bias": names.map((name, i) => {
    return { to: `resampler.attn.${name}`, change: vectorPart(i, 3), suffix: ".bias" };
  }),
  "resampler.attn.out_proj": "resampler.attn.out",
  "resampler.ln_q": "resampler.ln_q",
  "resampler.ln_kv": "resampler.ln_kv",
  "resampler.ln_post": "resampler.ln_post",
  "resampler.proj": { to: "resampler.proj", change: turned },
  "resampler.pos_embed": null,
};

export const minicpmVision: VisionClass = {
  name: "resampler",
  classes: ["MiniCPMV"],
  defaults: {
    ...{ hidden_size: 1152, intermediate_size: 4304, num_hidden_layers: 27, num_attention_heads: 16 },
    ...{ patch_size: 14, hidden_act: "gelu_pytorch_tanh", layer_norm_eps: 1e-6 },
  },
  prefixes: ["vpm."],
  tensors: { ...encoderTensors, post_layernorm: "v.post_ln", ...resampler },
  encoderFields({ model }) {
    model.mustBe("drop_vision_last_layer", false);
    // The tile size is that of the model's config. In the encoder's config, image_size is the size of the position table.
    return { image_size: model.countOr(448, "image_size") };
  },
  addPairs({ model }, pairs) {
    pairs.set("clip.minicpmv_version", { type: "i32", value: numbers[minicpmVersion(model)] });
    pairs.set("clip.minicpmv_query_num", { type: "u32", value: model.countOr(64, "query_num") });
  },
};
