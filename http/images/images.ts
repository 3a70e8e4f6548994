// Generated images in a response: either the image bytes, or the URL of a stored file.
import type { ImageGenerationEvent } from "../../actors/api/images/image-generation.ts";
import { stageBytes } from "../../actors/files/stage-bytes.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Context } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { clientOf } from "../server/client.ts";
import type { ImageFormat } from "./request.ts";
import type { WireImage } from "./wire.ts";

type FinishedImage = Extract<ImageGenerationEvent, { readonly type: "image" }>;

/** Converts a generated image to an image of a response. */
export type ShowImage = (image: FinishedImage) => Promise<WireImage>;

/**
 * Returns a function that builds the images of a response. `format`: requested format; null: a URL if the server stores files,
 * else base64. Throws unsupported if a URL is requested and the server stores no files.
 */
export function imagesAs(format: ImageFormat | null, exchange: Exchange, { files, config }: Context): ShowImage {
  if (format === "b64_json" || (format === null && files === null)) {
    return async ({ png, seed }) => ({ b64_json: base64(png), seed });
  }
  if (files === null) {
    const message = "this server keeps no files, so an image has no address; send response_format b64_json";
    throw new ServerError("unsupported", message, { param: "response_format" });
  }
  const address = addressOf(exchange, config.basePath);
  return async ({ png, seed }) => {
    const staged = await stageBytes(files.stagingFolder, "image", png);
    const { id } = await files.add({
      id: null,
      name: `image-${seed}.png`,
      format: "png",
      purpose: "agent_output",
      source: { tool: "image_generation", round: 0, turn: 0 },
      session: null,
      client: clientOf(exchange.request),
      staged,
      failure: null,
    });
    return { url: `${address}/v1/files/${id}/content`, seed };
  };
}

export function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
}

/** Returns the base URL of this server as the client sees it. If the request has no host header, returns only the path. */
function addressOf({ request: { headers } }: Exchange, basePath: string): string {
  const host = headers.get("host");
  if (!host) return basePath;
  const scheme = headers.get("x-forwarded-proto") === "https" ? "https" : "http";
  return `${scheme}://${host}${basePath}`;
}
