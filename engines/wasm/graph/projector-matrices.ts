import type { AudioOuterLayers } from "../audio/audio-outer-layers.ts";
import type { ConformerOuterLayers } from "../audio/conformer/steps.ts";
import { type VisionOuterLayers, visionSteps } from "../vision/vision-outer-layers.ts";
import type { Matrix } from "./graph-tensors.ts";

/** Outer layers of an encoder, as in Graph. */
interface EncoderOuterLayers {
  readonly vision: VisionOuterLayers | null;
  readonly audio?: AudioOuterLayers | null;
  readonly conformer?: ConformerOuterLayers | null;
}

/**
 * Returns the matrices before and after the layers of an image or audio encoder, in order of use, without the embedding matrix. Those of
 * mergers that run between the layers come last.
 */
export function projectorMatrices({ vision, audio, conformer }: EncoderOuterLayers): Matrix[] {
  if (conformer) {
    const { subsampling, output, embedder } = conformer;
    return [
      ...(subsampling ? [subsampling.secondConvolution, subsampling.inputProjection] : []),
      ...(output ? [output] : []),
      embedder,
    ];
  }
  const steps = vision ? visionSteps(vision) : (audio?.projector ?? []);
  const matrices = steps.flatMap((step) => (step.kind === "matrix" ? [step.matrix] : []));
  return audio ? [audio.convolution, ...matrices] : matrices;
}
