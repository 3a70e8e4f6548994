// Program that decodes frames of an animated image (GIF, WebP). It reads the image from stdin and writes evenly spaced frames to stdout: a
// line of JSON, then the PNG file of each frame. It runs in a separate process with limits of time and memory, because a damaged file may
// attack the decoder.
import { parseArgs } from "node:util";
import { runImageProgram } from "../image-program.ts";
import { sampledIndices } from "./sampled-indices.ts";

const { values } = parseArgs({
  options: { frames: { type: "string" }, maxPixels: { type: "string" }, maxEdge: { type: "string" } },
});

/** First line of the output: for each frame, the size in bytes of its file, and its time in seconds. */
export interface AnimationHead {
  readonly frames: readonly { readonly size: number; readonly seconds: number }[];
}

runImageProgram<AnimationHead>(async (sharp, bytes) => {
  const maxPixels = Number(values.maxPixels);
  const open = (page: number, limitInputPixels: number | false = maxPixels) =>
    sharp(bytes, { limitInputPixels, failOn: "error", page, pages: 1 });
  // The image's header is read without a limit, because sharp's own error does not state the size.
  const { pages = 1, width, height, delay = [] } = await open(0, false).metadata();
  if (width * height > maxPixels)
    throw new Error(`its frames have ${width} x ${height} pixels, more than ${maxPixels}`);
  const edge = Number(values.maxEdge);
  const parts: Buffer[] = [];
  const frames: { size: number; seconds: number }[] = [];
  for (const page of sampledIndices(pages, Number(values.frames))) {
    const image = open(page).resize(edge, edge, { fit: "inside", withoutEnlargement: true });
    const part = await image.png({ compressionLevel: 1 }).toBuffer();
    // Each page is shown for its delay, in milliseconds. Without one, browsers show it for 100 ms.
    const seconds = delay.slice(0, page).reduce((sum, ms) => sum + (ms > 10 ? ms : 100), 0) / 1000;
    parts.push(part);
    frames.push({ size: part.length, seconds });
  }
  return { head: { frames }, parts };
});
