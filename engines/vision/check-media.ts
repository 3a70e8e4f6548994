import type { ModelSpec } from "../engine.ts";
import type { RequestImage } from "../generation.ts";
import { takesNoAudio, tooManySounds } from "../hearing/audio-tokens.ts";
import { takesNoImages, tooManyImages } from "./image-tokens.ts";

/** Checks that a model takes the images, videos and audio of a request. Throws `unsupported` or `invalid_value`. */
export function checkMedia(
  given: readonly RequestImage[],
  { images, audio }: Pick<ModelSpec, "images" | "audio">,
  model: string,
): void {
  const seen = given.filter(({ media }) => media !== "audio");
  const heard = given.filter(({ media }) => media === "audio");
  if (seen[0] && !images) throw takesNoImages(model, seen[0].param);
  if (heard[0] && !audio) throw takesNoAudio(model, heard[0].param);
  if (seen[0] && images && seen.length > images.maxImages) {
    throw tooManyImages(seen.length, images.maxImages, seen[0].param);
  }
  if (heard[0] && audio && heard.length > audio.maxAudio) {
    throw tooManySounds(heard.length, audio.maxAudio, heard[0].param);
  }
}
