// Result of a tool of the embedding program: converts the returned value to text and images for the model and the client,
// within size limits.

import type { ServerToolResult } from "../../../actors/api/agent/server-tools.ts";
import { maxResultBytes } from "../../../actors/api/agent/tools.ts";
import { boundedText } from "../../../actors/tools/bounded-text.ts";
import type { IllustratedResult } from "./tool.ts";

const maxImages = 16;
/** Maximum total size in bytes of the images of a result. */
const maxImageBytes = 16 * 2 ** 20;
const pngSignature = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");

/**
 * Converts the value that a tool returned. A text that is too long is cut in the middle. Throws if the value is not a valid
 * result.
 */
export function resultOf(value: unknown): ServerToolResult {
  if (isIllustrated(value)) return success(value.content, pngImages(value.images));
  return success(typeof value === "string" ? value : jsonText(value), []);
}

function success(content: string, images: readonly string[]): ServerToolResult {
  return { status: "success", content: boundedText(content, maxResultBytes), images };
}

function isIllustrated(value: unknown): value is IllustratedResult {
  if (typeof value !== "object" || value === null) return false;
  return "content" in value && typeof value.content === "string" && "images" in value && Array.isArray(value.images);
}

function jsonText(value: unknown): string {
  const text: string | undefined = JSON.stringify(value);
  if (text !== undefined) return text;
  throw new Error(`the tool returned ${typeof value}; expected a text, a JSON value, or { content, images }`);
}

/** Returns the PNG files in base64. Throws above the limits, or if an image is not a PNG file. */
function pngImages(images: readonly unknown[]): readonly string[] {
  const files = images.map(pngOf);
  const bytes = files.reduce((sum, { length }) => sum + length, 0);
  if (files.length <= maxImages && bytes <= maxImageBytes) return files.map((file) => file.toString("base64"));
  const limits = `at most ${maxImages} images of together ${maxImageBytes} bytes`;
  throw new Error(`the tool returned ${files.length} images of together ${bytes} bytes; expected ${limits}`);
}

function pngOf(image: unknown): Buffer {
  if (image instanceof Uint8Array) {
    const file = Buffer.from(image.buffer, image.byteOffset, image.byteLength);
    if (file.subarray(0, pngSignature.length).equals(pngSignature)) return file;
  }
  throw new Error(
    "the tool returned an image that is not a PNG file; expected the bytes of a PNG file in a Uint8Array",
  );
}
