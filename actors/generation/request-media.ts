// Media of a request (images, videos, audio): the model's thread or process decodes and encodes them before the prompt is
// prepared, and holds their embeddings until the request ends.
import type { GenerateRequest } from "../../engines/generation.ts";
import { checkMedia } from "../../engines/media/check-media.ts";
import type { PreparedMedia } from "../../engines/media/media-tokens.ts";
import type { EncodedMedia } from "../../engines/media/model-media.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import type { ModelPlaceReady, ModelProtocol } from "../messages.ts";

/** Time limit in ms for the preparation of a request's media. Long, because media of other requests may be prepared first. */
const prepareTimeoutMs = 10 * 60 * 1000;

export interface HeldMedia {
  readonly hold: number;
  readonly prepared: readonly PreparedMedia[];
  /** Releases the embeddings. */
  release(): void;
}

/**
 * Prepares the media of a request; null = the request has no media. On failure, throws an error with the name of the field of the
 * image, video or audio.
 */
export async function holdMedia(
  request: GenerateRequest,
  {
    actor,
    ready,
    hold,
  }: { readonly actor: Ref<ModelProtocol>; readonly ready: ModelPlaceReady; readonly hold: number },
  signal: AbortSignal,
): Promise<HeldMedia | null> {
  const { media = [], model, client } = request;
  if (media.length === 0) return null;
  checkMedia(
    media.filter(({ kind }) => kind !== "frame"),
    ready,
    model,
  );
  const release = () => actor.tell("releaseMedia", { hold });
  signal.addEventListener("abort", release, { once: true });
  try {
    const encoded: EncodedMedia[] = media.map(({ key, source, kind, param, seconds = null }) => {
      if (source.kind !== "data") throw new Error("the sources of media are loaded on the main thread");
      return { key, digest: source.digest, bytes: source.bytes, isAudio: kind === "audio", seconds, param };
    });
    const message = { hold, client, media: encoded };
    const prepared = await actor.ask("prepareMedia", message, { timeoutMs: prepareTimeoutMs });
    return { hold, prepared, release };
  } catch (error) {
    // Needed after a failure too: the model may still prepare the media, for example if only the time limit of this call has passed.
    release();
    throw error;
  } finally {
    signal.removeEventListener("abort", release);
  }
}
