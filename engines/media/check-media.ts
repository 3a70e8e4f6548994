import { takesNoAudio, tooManyAudioParts } from "../audio-input/audio-tokens.ts";
import type { ModelSpec } from "../engine.ts";
import type { RequestMedia } from "../generation.ts";
import { takesNoImages, tooManyImages } from "../image-input/image-tokens.ts";

/** Checks that a model accepts the images, videos and audio of a request or prompt. Throws `unsupported` or `invalid_value`. */
export function checkMedia(
  given: readonly Pick<RequestMedia, "kind" | "param">[],
  taken: Pick<ModelSpec, "images" | "audio">,
  model: string,
): void {
  const images = given.filter(({ kind }) => kind !== "audio");
  const audio = given.filter(({ kind }) => kind === "audio");
  if (images[0] && !taken.images) throw takesNoImages(model, images[0].param);
  if (audio[0] && !taken.audio) throw takesNoAudio(model, audio[0].param);
  if (images[0] && taken.images && images.length > taken.images.maxImages) {
    throw tooManyImages(images.length, taken.images.maxImages, images[0].param);
  }
  if (audio[0] && taken.audio && audio.length > taken.audio.maxAudio) {
    throw tooManyAudioParts(audio.length, taken.audio.maxAudio, audio[0].param);
  }
}
