import type { AudioEnds } from "../audio/audio-ends.ts";
import type { VisionEnds } from "../vision/vision-ends.ts";
import type { Matrix } from "./graph-tensors.ts";

/** Ends of an encoder, as in Graph. */
interface EncoderEnds {
  readonly vision: VisionEnds | null;
  readonly audio?: AudioEnds | null;
}

/** Returns the matrices at the ends of an image or audio encoder, except the first, in the order in which they are used. */
export function projectorMatrices({ vision, audio }: EncoderEnds): Matrix[] {
  const steps = vision?.projector ?? audio?.projector ?? [];
  const matrices = steps.flatMap((step) => (step.kind === "matrix" ? [step.matrix] : []));
  return audio ? [audio.convolution, ...matrices] : matrices;
}
