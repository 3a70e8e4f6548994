// Images and audio of a request: has the model's place decode and encode them before the prompt is prepared, and holds them there until
// the request ends.
import type { GenerateRequest } from "../../engines/generation.ts";
import { checkMedia } from "../../engines/vision/check-media.ts";
import type { PreparedImage } from "../../engines/vision/image-tokens.ts";
import type { EncodedImage } from "../../engines/vision/model-images.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import type { ModelPlaceReady, ModelProtocol } from "../messages.ts";

/** Time limit of the preparation of a request's images. It is long, because images wait for those of other requests. */
const prepareTimeoutMs = 10 * 60 * 1000;

export interface HeldImages {
  readonly hold: number;
  readonly prepared: readonly PreparedImage[];
  /** Ends the hold. */
  release(): void;
}

/** Prepares the images of a request; null: it has none. Throws the error that names the field of the image. */
export async function holdImages(
  request: GenerateRequest,
  {
    actor,
    ready,
    hold,
  }: { readonly actor: Ref<ModelProtocol>; readonly ready: ModelPlaceReady; readonly hold: number },
  signal: AbortSignal,
): Promise<HeldImages | null> {
  const { images = [], model, client } = request;
  if (images.length === 0) return null;
  checkMedia(
    images.filter(({ media }) => media !== "frame"),
    ready,
    model,
  );
  const release = () => actor.tell("releaseImages", { hold });
  signal.addEventListener("abort", release, { once: true });
  try {
    const encoded: EncodedImage[] = images.map(({ key, source, media, param }) => {
      if (source.kind !== "data") throw new Error("the sources of images are loaded on the main thread");
      return { key, digest: source.digest, bytes: source.bytes, isAudio: media === "audio", param };
    });
    const message = { hold, client, images: encoded };
    const prepared = await actor.ask("prepareImages", message, { timeoutMs: prepareTimeoutMs });
    return { hold, prepared, release };
  } catch (error) {
    // The place may still prepare them, for example after the time limit of the ask.
    release();
    throw error;
  } finally {
    signal.removeEventListener("abort", release);
  }
}
