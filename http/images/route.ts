// POST /v1/images/generations: generates images, and sends them as one response body or as a stream.
import type { ImageGeneration, ImageGenerationEvent } from "../../actors/api/images/image-generation.ts";
import { fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { Context, RouteHandler } from "../context.ts";
import { type Exchange, jsonHeaders } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import { sendPieces } from "../shared/answer/pieces.ts";
import { readRequest } from "../shared/read-request.ts";
import { streamEvents } from "../sse.ts";
import { imagesAs, type ShowImage } from "./images.ts";
import { ImageStream, shownEvents } from "./stream.ts";
import { imageTranslator } from "./translator.ts";
import { commonImageFields, imageUsage, type WireImage } from "./wire.ts";

const PIECE_LENGTH = 64 * 1024;

export const images: RouteHandler = async (exchange, context) => {
  const { model: named, asked } = await readRequest(exchange, context, imageTranslator);
  const imageGeneration = imageGenerationOf(context);
  const model = imageGeneration.resolve(named ?? undefined);
  exchange.model = model;
  const show = imagesAs(asked.format, exchange, context);
  const client = clientOf(exchange.request);
  const events = imageGeneration.generate({ ...asked.generation, model, client }, exchange.request.signal);
  if (asked.isStreamed) await streamEvents(exchange, shownEvents(events, show), new ImageStream(), context.config);
  else await sendImages(exchange, context, events, show);
};

async function sendImages(
  exchange: Exchange,
  { answerMemory, config }: Context,
  events: AsyncIterable<readonly ImageGenerationEvent[]>,
  show: ShowImage,
): Promise<void> {
  const lease = answerMemory.lease(clientOf(exchange.request));
  const data: WireImage[] = [];
  let common = commonImageFields(0, 0);
  let promptTokens = 0;
  let isDone = false;
  try {
    for await (const event of flat(events)) {
      if (event.type === "error") throw fromErrorRecord(event.error);
      if (event.type === "done") isDone = true;
      if (event.type === "begin") {
        common = commonImageFields(event.width, event.height);
        promptTokens += event.promptTokens;
      }
      if (event.type !== "image") continue;
      const image = await show(event);
      lease.add(image.b64_json?.length ?? 0);
      data.push(image);
    }
    if (exchange.request.signal.aborted) return;
    if (!isDone)
      throw new ServerError("peer_gone", "the model ended before the images were done; send the request again");
    const created = Math.floor(Date.now() / 1000);
    const body = JSON.stringify({ created, data, ...common, usage: imageUsage(promptTokens) });
    await sendPieces(exchange, jsonHeaders, slices(body), config);
  } finally {
    lease.release();
  }
}

async function* flat(events: AsyncIterable<readonly ImageGenerationEvent[]>): AsyncGenerator<ImageGenerationEvent> {
  for await (const batch of events) yield* batch;
}

function* slices(text: string): Generator<string> {
  for (let at = 0; at < text.length; at += PIECE_LENGTH) yield text.slice(at, at + PIECE_LENGTH);
}

function imageGenerationOf({ imageGeneration }: Pick<Context, "imageGeneration">): ImageGeneration {
  if (imageGeneration !== null) return imageGeneration;
  throw new ServerError(
    "unsupported",
    'this server makes no images: it has no diffusion model; add a [[models]] entry of kind = "diffusion"',
  );
}
