// Image worker: entry point of the thread that computes the embeddings of tiles.
import { runEncoderLoop } from "../media/encoder-loop.ts";
import { ImageEncoder, type Tile } from "../wasm/vision/image-encoder.ts";

await runEncoderLoop<Tile>(async ({ path, threads }) => {
  const encoder = await ImageEncoder.load(path, threads);
  return (tile) => encoder.encode(tile);
});
