// Images and audio of a model: prepares those of requests and keeps their embeddings. An image is decoded and encoded once, and
// its embeddings stay in a cache of limited size. A request holds its images from their preparation until its end; the
// embeddings that requests hold are limited, too.
import { ServerError } from "../../runtime/errors.ts";
import type { PromptSpan } from "../batch.ts";
import type { AudioRules } from "../files/audio-projector.ts";
import type { ProjectorFile } from "../files/projector.ts";
import type { AudioThread } from "../hearing/audio-thread.ts";
import type { EncoderThread } from "./encoder-thread.ts";
import { cutImage } from "./image-decoder.ts";
import { type PreparedImage, type TileSpan, tileGrid } from "./image-tokens.ts";

/** Maximum size in bytes of the embeddings that the requests in progress hold together. */
const maxHeldBytes = 2 ** 30;

export interface ModelImagesOptions {
  /** null: the model takes no images. */
  readonly images: {
    readonly file: Pick<ProjectorFile, "tiling" | "rules">;
    readonly encoder: Pick<EncoderThread, "encode">;
    /** Longest edge of an image in pixels, to which larger ones are scaled; null: none. */
    readonly maxEdge: number | null;
  } | null;
  /** null: the model takes no audio. */
  readonly audio: {
    readonly rules: Pick<AudioRules, "windowTokens">;
    readonly encoder: Pick<AudioThread, "encode">;
  } | null;
  /** Maximum size of the cached embeddings in bytes. */
  readonly cacheBytes: number;
}

/** Image to prepare. */
export interface EncodedImage {
  readonly key: string;
  readonly digest: string;
  readonly bytes: Uint8Array;
  readonly isAudio: boolean;
  /** Field of the request that has it, for errors. */
  readonly param: string;
}

export interface EncoderCacheStatistics {
  hits: number;
  misses: number;
}

interface ImageEntry {
  readonly grid: PreparedImage["grid"];
  readonly isAudio: boolean;
  readonly tiles: readonly EncodedTile[];
  readonly bytes: number;
}

interface EncodedTile {
  readonly rows: number;
  readonly columns: number;
  /** Shape [rows x columns][width of the model]. */
  readonly embeddings: Float32Array;
}

/** Image that is being prepared. */
interface Preparation {
  readonly entry: Promise<ImageEntry>;
  /** For each request that waits for it: whether it still does. If none does, no further tile is computed. */
  readonly wanted: (() => boolean)[];
}

export class ModelImages {
  readonly statistics: EncoderCacheStatistics = { hits: 0, misses: 0 };
  readonly #options: ModelImagesOptions;
  /** Least recently used first. */
  readonly #cache = new Map<string, ImageEntry>();
  #cachedBytes = 0;
  readonly #preparing = new Map<string, Preparation>();
  /** Images that requests hold, by owner and number of the hold; by digest in a hold. */
  readonly #holds = new Map<object, Map<number, Map<string, ImageEntry>>>();

  constructor(options: ModelImagesOptions) {
    this.#options = options;
  }

  /**
   * Decodes and encodes the images, and holds them for `owner` under the number `hold`. Throws `invalid_value` for an image
   * that cannot be decoded, `queue_full` if the requests in progress hold too many images, `cancelled` if the hold is released
   * meanwhile.
   */
  async prepare(
    owner: object,
    hold: number,
    images: readonly EncodedImage[],
    client: string,
  ): Promise<readonly PreparedImage[]> {
    const held = new Map<string, ImageEntry>();
    const holds = this.#holds.get(owner) ?? new Map<number, Map<string, ImageEntry>>();
    this.#holds.set(owner, holds.set(hold, held));
    const isHeld = () => this.#holds.get(owner)?.get(hold) === held;
    try {
      for (const image of images) {
        if (this.#heldBytes() > maxHeldBytes) throw tooManyImages();
        const entry = this.#entry(image, client, isHeld);
        held.set(idOf(image), await entry.catch((error: unknown) => Promise.reject(withField(error, image.param))));
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
    return images.map((image) => {
      const { grid, isAudio, tiles } = held.get(idOf(image)) as ImageEntry;
      const sizes = tiles.map(({ rows, columns }) => ({ rows, columns }));
      return { key: image.key, digest: idOf(image), grid, isAudio, tiles: sizes };
    });
  }

  /** Size of the embeddings that requests hold; an image that several requests hold counts once. */
  #heldBytes(): number {
    const entries = new Set<ImageEntry>();
    for (const holds of this.#holds.values()) {
      for (const held of holds.values()) for (const entry of held.values()) entries.add(entry);
    }
    let bytes = 0;
    for (const entry of entries) bytes += entry.bytes;
    return bytes;
  }

  /** Returns the parts of a prompt that are embeddings. Throws model_failed if the images are not held. */
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

  async #entry(image: EncodedImage, client: string, isHeld: () => boolean): Promise<ImageEntry> {
    const digest = idOf(image);
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
    const preparation = known ?? this.#begin(image, client, isHeld);
    try {
      return await preparation.entry;
    } catch (error) {
      // The preparation may have been cancelled just before this request joined it.
      const wasCancelled = error instanceof ServerError && error.code === "cancelled";
      if (!wasCancelled || !isHeld() || known === undefined) throw error;
      return await this.#entry(image, client, isHeld);
    }
  }

  #begin(image: EncodedImage, client: string, isHeld: () => boolean): Preparation {
    const wanted: Preparation["wanted"] = [isHeld];
    const isWanted = () => wanted.some((one) => one());
    const entry = this.#encode(image, client, isWanted).finally(() => this.#preparing.delete(idOf(image)));
    const preparation = { entry, wanted };
    this.#preparing.set(idOf(image), preparation);
    return preparation;
  }

  async #encode(image: EncodedImage, client: string, isWanted: () => boolean): Promise<ImageEntry> {
    const { isAudio } = image;
    const { grid, tiles } = isAudio
      ? await this.#encodeAudio(image, client, isWanted)
      : await this.#encodeImage(image, client, isWanted);
    const bytes = tiles.reduce((sum, { embeddings }) => sum + embeddings.byteLength, 0);
    const entry = { grid, tiles, isAudio, bytes };
    this.#keep(idOf(image), entry);
    return entry;
  }

  async #encodeImage(
    { bytes }: EncodedImage,
    client: string,
    isWanted: () => boolean,
  ): Promise<Pick<ImageEntry, "grid" | "tiles">> {
    const { images } = this.#options;
    if (images === null) throw new ServerError("unsupported", "this model takes no images");
    const { file, encoder, maxEdge } = images;
    const { grid, tiles: cut } = await cutImage(bytes, file.tiling, maxEdge, client);
    const tiles: EncodedTile[] = [];
    for (const tile of cut) {
      const embeddings = await encoder.encode(tile, isWanted);
      if (embeddings === null) throw new ServerError("cancelled", "the requests with this image were cancelled");
      tiles.push({ ...tileGrid(file.rules, tile), embeddings });
    }
    return { grid, tiles };
  }

  /** Each window is a tile of one row. */
  async #encodeAudio(
    { bytes }: EncodedImage,
    client: string,
    isWanted: () => boolean,
  ): Promise<Pick<ImageEntry, "grid" | "tiles">> {
    const { audio } = this.#options;
    if (audio === null) throw new ServerError("unsupported", "this model takes no audio");
    const windows = await audio.encoder.encode(bytes, client, isWanted);
    if (windows === null) throw new ServerError("cancelled", "the requests with this audio were cancelled");
    const columns = audio.rules.windowTokens;
    return { grid: null, tiles: windows.map((embeddings) => ({ rows: 1, columns, embeddings })) };
  }

  #keep(digest: string, entry: ImageEntry): void {
    const { cacheBytes } = this.#options;
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

/** A file has other embeddings as audio than as an image. */
function idOf({ digest, isAudio }: Pick<EncodedImage, "digest" | "isAudio">): string {
  return isAudio ? `audio ${digest}` : digest;
}

function tooManyImages(): ServerError {
  const message = `the requests in progress hold more than ${maxHeldBytes / 2 ** 20} MiB of embeddings of images and audio; try again later`;
  return new ServerError("queue_full", message);
}

/** Returns the error of a damaged image with the field that has it. Requests may share the work on an image. */
function withField(error: unknown, param: string): unknown {
  if (!(error instanceof ServerError) || error.code !== "invalid_value" || error.param !== undefined) return error;
  return new ServerError("invalid_value", error.message, { param, cause: error });
}
