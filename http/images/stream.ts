// Image stream: encodes the events of image generation as server-sent events.
import type { ImageGenerationEvent } from "../../actors/api/images/image-generation.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";
import { errorBody } from "../errors.ts";
import type { StreamCodec } from "../sse.ts";
import { base64, type ShowImage } from "./images.ts";
import { commonImageFields, type ImageEvent, imageUsage } from "./wire.ts";

/** Event of an image stream: an event of the model's process, or a finished image in its response format. */
export type ShownEvent =
  | Exclude<ImageGenerationEvent, { readonly type: "image" }>
  | { readonly type: "shown"; readonly imageIndex: number; readonly image: Awaited<ReturnType<ShowImage>> };

/** Converts each finished image in a stream of events to its response format (URL of a stored file, or base64). */
export async function* shownEvents(
  events: AsyncIterable<readonly ImageGenerationEvent[]>,
  show: ShowImage,
): AsyncGenerator<readonly ShownEvent[]> {
  for await (const batch of events) {
    const shown: ShownEvent[] = [];
    for (const event of batch) {
      if (event.type !== "image") shown.push(event);
      else shown.push({ type: "shown", imageIndex: event.imageIndex, image: await show(event) });
    }
    yield shown;
  }
}

export class ImageStream implements StreamCodec<ShownEvent> {
  isEnded = false;
  #common: ReturnType<typeof commonImageFields> = commonImageFields(0, 0);
  #promptTokens = 0;

  *encode(events: readonly ShownEvent[]): Generator<string> {
    for (const event of events) {
      if (event.type === "error") yield this.fail(event.error);
      else if (event.type === "done") this.isEnded = true;
      else if (event.type === "begin") {
        this.#common = commonImageFields(event.width, event.height);
        this.#promptTokens = event.promptTokens;
      } else yield* sent(this.#wire(event));
    }
  }

  fail(error: ErrorRecord): string {
    this.isEnded = true;
    return `event: error\ndata: ${errorBody(error)}\n\n`;
  }

  #wire(event: Exclude<ShownEvent, { readonly type: "begin" | "done" | "error" }>): ImageEvent {
    const created_at = Math.floor(Date.now() / 1000);
    const image_index = event.imageIndex;
    if (event.type === "step") {
      return { type: "image_generation.in_progress", image_index, step: event.done, steps: event.steps };
    }
    const head = { created_at, ...this.#common, image_index };
    if (event.type === "partial") {
      const b64_json = base64(event.png);
      return { type: "image_generation.partial_image", ...head, partial_image_index: event.index, b64_json };
    }
    const usage = imageUsage(this.#promptTokens);
    return { type: "image_generation.completed", ...head, ...event.image, usage };
  }
}

const PIECE_LENGTH = 64 * 1024;

/** Yields an event as text, in pieces because an image may be megabytes long. */
function* sent(event: ImageEvent): Generator<string> {
  const text = `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
  for (let at = 0; at < text.length; at += PIECE_LENGTH) yield text.slice(at, at + PIECE_LENGTH);
}
