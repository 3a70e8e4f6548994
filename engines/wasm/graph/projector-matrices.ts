import type { AudioOuterLayers, AudioStep } from "../audio/audio-outer-layers.ts";
import type { ConformerOuterLayers } from "../audio/conformer/steps.ts";
import { type ProjectorStep, type VisionOuterLayers, visionSteps } from "../vision/vision-outer-layers.ts";
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
    const { subsampling, projector } = conformer;
    const [, ...laterStages] = subsampling?.stages ?? [];
    return [
      ...laterStages.map(({ matrix }) => matrix),
      ...(subsampling ? [subsampling.inputProjection] : []),
      ...matricesOf(projector),
    ];
  }
  const matrices = matricesOf(vision ? visionSteps(vision) : (audio?.projector ?? []));
  return audio ? [audio.convolution, ...matrices] : matrices;
}

function matricesOf(steps: readonly (ProjectorStep | AudioStep)[]): Matrix[] {
  return steps.flatMap((step) => (step.kind === "matrix" ? [step.matrix] : []));
}
