// Image thread: starts the thread of image-worker.ts.
import type { EncoderStart } from "../media/encoder-loop.ts";
import { EncoderThread } from "../media/encoder-thread.ts";
import type { Tile } from "../wasm/vision/image-encoder.ts";

const worker = new URL("./image-worker.js", import.meta.url);

/** Starts the thread that computes the embeddings of tiles. Throws `model_file_invalid` or `unsupported`. */
export async function startImageThread(start: EncoderStart): Promise<EncoderThread<Tile>> {
  return await EncoderThread.start<Tile>(start, worker);
}
