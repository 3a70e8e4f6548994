import type { AudioOuterLayers } from "../audio/audio-outer-layers.ts";
import type { VisionOuterLayers } from "../vision/vision-outer-layers.ts";
import type { Matrix } from "./graph-tensors.ts";

/** Outer layers of an encoder, as in Graph. */
interface EncoderOuterLayers {
  readonly vision: VisionOuterLayers | null;
  readonly audio?: AudioOuterLayers | null;
}

/** Returns the matrices before and after the layers of an image or audio encoder, in order of use, without the embedding matrix. */
export function projectorMatrices({ vision, audio }: EncoderOuterLayers): Matrix[] {
  const steps = vision?.projector ?? audio?.projector ?? [];
  const matrices = steps.flatMap((step) => (step.kind === "matrix" ? [step.matrix] : []));
  return audio ? [audio.convolution, ...matrices] : matrices;
}
