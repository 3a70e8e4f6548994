// Media of a model: prepares the images, video frames and audio of requests, and keeps their embeddings. Each file is decoded and encoded
// once, and its embeddings stay in a cache of limited size. A request holds its media from their preparation until the request ends. The
// size of the embeddings that requests hold is limited, too.
import { ServerError } from "../../runtime/errors.ts";
import type { AudioThread } from "../audio-input/audio-thread.ts";
import type { PromptSpan } from "../batch.ts";
import type { ImageSpec } from "../engine.ts";
import type { ProjectorFile } from "../files/projector/image-projector.ts";
import { cutImage } from "../image-input/image-decoder.ts";
import { tileGrid } from "../image-input/image-tokens.ts";
import type { Tile } from "../wasm/vision/image-encoder.ts";
import type { EncoderThread } from "./encoder-thread.ts";
import type { PreparedMedia, TileSpan } from "./media-tokens.ts";

export interface ModelMediaOptions {
  /** null = the model accepts no images. */
  readonly images: {
    readonly file: Pick<ProjectorFile, "tiling" | "rules">;
    readonly encoder: Pick<EncoderThread<Tile>, "encode">;
    /** Longest edge of an image in pixels, to which larger images are scaled; null = no limit. */
    readonly maxEdge: number | null;
  } | null;
  /** null = the model accepts no audio. */
  readonly audio: {
    /** Number of floats of an embedding. */
    readonly embeddingLength: number;
    readonly encoder: Pick<AudioThread, "encode">;
  } | null;
  readonly limits: Pick<ImageSpec, "cacheBytes" | "maxMediaBytesInFlight">;
}

/** Image, frame of a video or audio file to prepare. */
export interface EncodedMedia {
  readonly key: string;
  readonly digest: string;
  readonly bytes: Uint8Array;
  readonly isAudio: boolean;
  /** For a frame of a video, its time in seconds; else null. */
  readonly seconds: number | null;
  /** Name of the request field that contains the file, for errors. */
  readonly param: string;
}

export interface EncoderCacheStatistics {
  hits: number;
  misses: number;
}

interface MediaEntry {
  readonly grid: PreparedMedia["grid"];
  readonly isAudio: boolean;
  readonly tiles: readonly EncodedTile[];
  readonly bytes: number;
}

interface EncodedTile {
  readonly rows: number;
  readonly columns: number;
  /** Shape [rows x columns][inputLength of the model's card]. */
  readonly embeddings: Float32Array;
}

/** Preparation of a file that several requests may wait for. */
interface Preparation {
  readonly entry: Promise<MediaEntry>;
  /** For each request that wants the file: a function that returns whether it still waits. If none waits, no further tile is computed. */
  readonly wanted: (() => boolean)[];
}

export class ModelMedia {
  readonly statistics: EncoderCacheStatistics = { hits: 0, misses: 0 };
  readonly #options: ModelMediaOptions;
  /** Embeddings by key of the file. Least recently used first. */
  readonly #cache = new Map<string, MediaEntry>();
  #cachedBytes = 0;
  readonly #preparing = new Map<string, Preparation>();
  /** Media that requests hold: by owner, then by the number that the owner gave the request (hold), then by key of the file. */
  readonly #holds = new Map<object, Map<number, Map<string, MediaEntry>>>();

  constructor(options: ModelMediaOptions) {
    this.#options = options;
  }

  /**
   * Decodes and encodes the media, and keeps them until `owner` releases the number `hold`. Throws `invalid_value` for a file that cannot
   * be decoded, `queue_full` if the requests in progress hold too many embeddings, `cancelled` if `hold` is released meanwhile.
   */
  async prepare(
    owner: object,
    hold: number,
    media: readonly EncodedMedia[],
    client: string,
  ): Promise<readonly PreparedMedia[]> {
    const { maxMediaBytesInFlight: maxBytes } = this.#options.limits;
    const held = new Map<string, MediaEntry>();
    const holds = this.#holds.get(owner) ?? new Map<number, Map<string, MediaEntry>>();
    this.#holds.set(owner, holds.set(hold, held));
    const isHeld = () => this.#holds.get(owner)?.get(hold) === held;
    try {
      for (const item of media) {
        if (bytesOf(held.values()) > maxBytes) throw tooLargeRequest(item.param, maxBytes);
        if (this.#heldBytes() > maxBytes) throw tooMuchMedia(maxBytes);
        const entry = this.#entry(item, client, isHeld);
        held.set(idOf(item), await entry.catch((error: unknown) => Promise.reject(withField(error, item.param))));
        if (!isHeld())
          throw new ServerError(
            "cancelled",
            "the request was cancelled while its images, videos or audio were prepared",
          );
      }
    } catch (error) {
      this.release(owner, hold);
      throw error;
    }
    return media.map((item) => {
      const { grid, isAudio, tiles } = held.get(idOf(item)) as MediaEntry;
      const sizes = tiles.map(({ rows, columns }) => ({ rows, columns }));
      return { key: item.key, digest: idOf(item), grid, isAudio, tiles: sizes, seconds: item.seconds };
    });
  }

  /** Returns the size in bytes of the embeddings that requests hold. Embeddings that several requests hold count once. */
  #heldBytes(): number {
    const entries = new Set<MediaEntry>();
    for (const holds of this.#holds.values()) {
      for (const held of holds.values()) for (const entry of held.values()) entries.add(entry);
    }
    return bytesOf(entries);
  }

  /** Returns the tiles of a prompt with their embeddings. Throws model_failed if `owner` holds no embeddings of a tile. */
  spans(owner: object, hold: number, tiles: readonly TileSpan[]): PromptSpan[] {
    const held = this.#holds.get(owner)?.get(hold);
    const rules = this.#options.images?.file.rules;
    return tiles.map(({ from, to, digest, tile }) => {
      const entry = held?.get(digest);
      const encoded = entry?.tiles[tile];
      if (entry && encoded) {
        const { rows, columns, embeddings } = encoded;
        const { attendsAhead = false, hasGridPositions = false } = entry.isAudio ? {} : (rules ?? {});
        return { from, to, embeddings, attendsAhead, grid: hasGridPositions ? { rows, columns } : null };
      }
      throw new ServerError(
        "model_failed",
        "the images, videos or audio of the request are not prepared; the request can be retried",
      );
    });
  }

  release(owner: object, hold: number): void {
    const holds = this.#holds.get(owner);
    holds?.delete(hold);
    if (holds?.size === 0) this.#holds.delete(owner);
  }

  drop(owner: object): void {
    this.#holds.delete(owner);
  }

  async #entry(item: EncodedMedia, client: string, isHeld: () => boolean): Promise<MediaEntry> {
    const digest = idOf(item);
    const cached = this.#cache.get(digest);
    if (cached !== undefined) {
      this.statistics.hits++;
      this.#cache.delete(digest);
      this.#cache.set(digest, cached);
      return cached;
    }
    const known = this.#preparing.get(digest);
    if (known !== undefined) this.statistics.hits++;
    else this.statistics.misses++;
    known?.wanted.push(isHeld);
    const preparation = known ?? this.#begin(item, client, isHeld);
    try {
      return await preparation.entry;
    } catch (error) {
      // The preparation may have been cancelled just before this request joined it.
      const wasCancelled = error instanceof ServerError && error.code === "cancelled";
      if (!wasCancelled || !isHeld() || known === undefined) throw error;
      return await this.#entry(item, client, isHeld);
    }
  }

  #begin(item: EncodedMedia, client: string, isHeld: () => boolean): Preparation {
    const wanted: Preparation["wanted"] = [isHeld];
    const isWanted = () => wanted.some((one) => one());
    const entry = this.#encode(item, client, isWanted).finally(() => this.#preparing.delete(idOf(item)));
    const preparation = { entry, wanted };
    this.#preparing.set(idOf(item), preparation);
    return preparation;
  }

  async #encode(item: EncodedMedia, client: string, isWanted: () => boolean): Promise<MediaEntry> {
    const { isAudio } = item;
    const { grid, tiles } = isAudio
      ? await this.#encodeAudio(item, client, isWanted)
      : await this.#encodeImage(item, client, isWanted);
    const bytes = tiles.reduce((sum, { embeddings }) => sum + embeddings.byteLength, 0);
    const entry = { grid, tiles, isAudio, bytes };
    this.#keep(idOf(item), entry);
    return entry;
  }

  async #encodeImage(
    { bytes, seconds }: EncodedMedia,
    client: string,
    isWanted: () => boolean,
  ): Promise<Pick<MediaEntry, "grid" | "tiles">> {
    const { images } = this.#options;
    if (images === null) throw new ServerError("unsupported", "this model takes no images");
    const { file, encoder, maxEdge } = images;
    const { grid, tiles: cut } = await cutImage(bytes, file.tiling, { maxEdge, client, isFrame: seconds !== null });
    const tiles: EncodedTile[] = [];
    for (const tile of cut) {
      const embeddings = await encoder.encode(tile, isWanted);
      if (embeddings === null) throw new ServerError("cancelled", "the requests with this image were cancelled");
      tiles.push({ ...tileGrid(file.rules, tile), embeddings });
    }
    return { grid, tiles };
  }

  /** Encodes audio. Each window is a tile of one row. */
  async #encodeAudio(
    { bytes }: EncodedMedia,
    client: string,
    isWanted: () => boolean,
  ): Promise<Pick<MediaEntry, "grid" | "tiles">> {
    const { audio } = this.#options;
    if (audio === null) throw new ServerError("unsupported", "this model takes no audio");
    const windows = await audio.encoder.encode(bytes, client, isWanted);
    if (windows === null) throw new ServerError("cancelled", "the requests with this audio were cancelled");
    const columnsOf = (embeddings: Float32Array) => embeddings.length / audio.embeddingLength;
    const tiles = windows.map((embeddings) => ({ rows: 1, columns: columnsOf(embeddings), embeddings }));
    return { grid: null, tiles };
  }

  #keep(digest: string, entry: MediaEntry): void {
    const { cacheBytes } = this.#options.limits;
    if (entry.bytes > cacheBytes) return;
    this.#cache.set(digest, entry);
    this.#cachedBytes += entry.bytes;
    for (const [oldest, { bytes }] of this.#cache) {
      if (this.#cachedBytes <= cacheBytes) return;
      this.#cache.delete(oldest);
      this.#cachedBytes -= bytes;
    }
  }
}

/** Returns the key of a file. A file has different embeddings as audio, as an image and as a frame of a video. */
function idOf({ digest, isAudio, seconds }: Pick<EncodedMedia, "digest" | "isAudio" | "seconds">): string {
  if (isAudio) return `audio ${digest}`;
  return seconds === null ? digest : `frame ${digest}`;
}

function bytesOf(entries: Iterable<MediaEntry>): number {
  let bytes = 0;
  for (const entry of entries) bytes += entry.bytes;
  return bytes;
}

function tooLargeRequest(param: string, maxBytes: number): ServerError {
  const message =
    `the images, videos and audio of the request take more than ${mib(maxBytes)} of embeddings (max_media_bytes_in_flight); send fewer ` +
    "or smaller ones, or lower max_edge or max_num_frames";
  return new ServerError("unsupported", message, { param });
}

function tooMuchMedia(maxBytes: number): ServerError {
  const message =
    `the requests in progress hold more than ${mib(maxBytes)} of embeddings of images and audio (max_media_bytes_in_flight); try again ` +
    "later";
  return new ServerError("queue_full", message);
}

function mib(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MiB`;
}

/**
 * Adds the name of the request field to the error of a damaged file. The original error names no field, because requests may share the work
 * on a file.
 */
function withField(error: unknown, param: string): unknown {
  if (!(error instanceof ServerError) || error.code !== "invalid_value" || error.param !== undefined) return error;
  return new ServerError("invalid_value", error.message, { param, cause: error });
}
