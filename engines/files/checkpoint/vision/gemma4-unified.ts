// Gemma 4 12B: no encoders. One matrix projects squares of pixels, another runs of 640 samples.
import type { Change } from "../architectures/architecture.ts";
import { swapped, swappedColumns } from "../row-changes.ts";
import { addGemma4Sizes, gemma4ImageSize, gemma4Images } from "./gemma4.ts";
import type { AudioClass, VisionClass } from "./vision-class.ts";

/** Orders the columns by channel; in the checkpoint, the three channels of a pixel follow one another. */
const byChannel: Change = ({ rows, shape }) => {
  return { rows: swappedColumns(rows, { x: rows.columns / 3, y: 3, inner: 1 }), shape };
};

/** Makes a table for x and a table for y; in the checkpoint, the two rows of a position follow one another. */
const positionTables: Change = ({ rows, shape }) => {
  const [width = 0, axes = 0, positions = 0] = shape;
  return { rows: swapped(rows, { x: positions, y: axes }), shape: [width, positions, axes] };
};

const gemma4Samples: AudioClass = {
  name: "gemma4ua",
  defaults: { audio_embed_dim: 640, hidden_size: 640, rms_norm_eps: 1e-6 },
  hasNoLayers: true,
  prefixes: ["model.", "embed_audio."],
  tensors: { embedding_projection: "mm.a.input_projection" },
  addPairs(encoder) {
    encoder.mustBe("audio_embed_dim", 640);
    encoder.mustBe("hidden_size", 640);
    encoder.mustBe("rms_norm_eps", 1e-6);
  },
};

export const gemma4Squares: VisionClass = {
  name: "gemma4uv",
  classes: ["Gemma4UnifiedForConditionalGeneration"],
  defaults: { patch_size: 16, pooling_kernel_size: 3, mm_embed_dim: 3840, rms_norm_eps: 1e-6 },
  hasNoLayers: true,
  imageFields: gemma4Images,
  prefixes: ["model.", "vision_embedder.", "embed_vision.", "multimodal_embedder."],
  tensors: {
    patch_ln1: { to: "v.patch_norm.1", change: byChannel },
    patch_dense: [
      { to: "v.patch_embd", only: ".weight", change: byChannel },
      { to: "v.patch_embd", only: ".bias" },
    ],
    patch_ln2: "v.patch_norm.2",
    pos_embedding: { to: "v.position_embd", change: positionTables },
    pos_norm: "v.patch_norm.3",
    embedding_projection: "mm.input_projection",
  },
  encoderFields({ encoder, images }) {
    images.mustBe("do_normalize", false);
    encoder.mustBe("rms_norm_eps", 1e-6);
    return {
      image_size: gemma4ImageSize,
      hidden_size: encoder.count("mm_embed_dim"),
      layer_norm_eps: encoder.value("rms_norm_eps"),
    };
  },
  addPairs: addGemma4Sizes,
  audio: gemma4Samples,
};
