// Media tokens: the runs of placeholders in a prompt that stand for the tiles of images and the windows of audio. The tags around them are
// in image-tokens.ts and audio-tokens.ts.
import { createHash } from "node:crypto";

/** Image, frame of a video or audio file whose tiles are known. Plain data. */
export interface PreparedMedia {
  /** Key of the file among the request's media. */
  readonly key: string;
  /** Digest of the encoded file, in hexadecimal digits; for audio and frames, after the word `audio` or `frame` and a space. */
  readonly digest: string;
  /** Rows and columns of the grid of tiles. One more tile, the last, shows the whole image. null = there is only one tile. */
  readonly grid: { readonly rows: number; readonly columns: number } | null;
  /** For each tile: rows and columns of its embeddings. A window of audio is a tile of one row. */
  readonly tiles: readonly { readonly rows: number; readonly columns: number }[];
  /** Whether this is audio, whose windows take the place of tiles. */
  readonly isAudio: boolean;
  /** For a frame of a video, its time in seconds; else null. */
  readonly seconds: number | null;
}

/** Tile in a prompt: the placeholders at positions `from` to `to` - 1. */
export interface TileSpan {
  readonly from: number;
  readonly to: number;
  readonly digest: string;
  readonly tile: number;
}

/** Returns the key of a frame of a video. */
export function frameKey(video: string, frame: number): string {
  return `${video} frame ${frame}`;
}

/** Returns the image or audio with this key, or the frames of the video with this key in order. */
export function mediaOf(media: readonly PreparedMedia[], key: string): readonly PreparedMedia[] {
  const byKey = new Map(media.map((item) => [item.key, item]));
  const item = byKey.get(key);
  if (item !== undefined) return [item];
  const frames: PreparedMedia[] = [];
  for (let next = byKey.get(frameKey(key, 0)); next !== undefined; next = byKey.get(frameKey(key, frames.length))) {
    frames.push(next);
  }
  return frames;
}

/**
 * Returns the placeholders of a tile: negative numbers derived from the digest of the file and the size of the tile. Prefixes of prompts
 * are compared by tokens, so different files must have different placeholders, also in later processes.
 */
export function placeholders({ digest, tiles }: Pick<PreparedMedia, "digest" | "tiles">, tile: number): Int32Array {
  const { rows = 0, columns = 0 } = tiles[tile] ?? {};
  const bytes = createHash("shake256", { outputLength: rows * columns * Int32Array.BYTES_PER_ELEMENT })
    .update(`${digest} ${tile} ${rows}x${columns}`)
    .digest();
  return Int32Array.from({ length: rows * columns }, (_, i) => bytes.readInt32LE(i * 4) | -0x8000_0000);
}
