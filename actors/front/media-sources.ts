// Media sources: loads the images, videos and audio that a request refers to by URL or file id, on the main thread. Images and
// audio are decoded later. Videos are decoded here by an external program and replaced by their frames. Limits the number of
// concurrent loads and the total bytes held by requests.
import type { GenerateRequest, RequestMedia } from "../../engines/generation.ts";
import { type EncodedVideo, type VideoFrame, VideoFrames } from "../../engines/image-input/video/video-frames.ts";
import { digestOf } from "../../engines/media/digest.ts";
import { frameKey } from "../../engines/media/media-tokens.ts";
import { ServerError } from "../../runtime/errors.ts";
import { ClientGate } from "../../runtime/queues/keyed-gates.ts";
import { GuardedFetcher } from "../../runtime/web/guarded-fetch.ts";
import type { FetchLimits } from "../../runtime/web/limits.ts";

const mebibyte = 2 ** 20;
/** Maximum size of a loaded file in bytes. */
const maxFileBytes = 64 * mebibyte;
/** Maximum size in bytes of the loaded files: of one request, and of the requests of a client and of all whose prompts are not prepared yet. */
const maxRequestBytes = 128 * mebibyte;
const maxClientBytes = 256 * mebibyte;
const maxBytes = 512 * mebibyte;
/** Maximum number of concurrent loads: of one request, and of all requests. One client may have half of them. */
const maxRequestLoads = 2;
const maxLoads = 8;
const limits: FetchLimits = {
  headersMs: 10_000,
  totalMs: 30_000,
  redirects: 3,
  sentBytes: maxFileBytes,
  bodyBytes: maxFileBytes,
  minBytesPerSecond: 0,
};

/** Returns the content of a stored file. Throws `not_found`. */
type ReadFile = (id: string) => Promise<Uint8Array>;

interface MediaSourcesOptions {
  /** Reads a stored file; null = the server stores no files. */
  readonly readFile: ReadFile | null;
  readonly fetcher?: Pick<GuardedFetcher, "fetch">;
  readonly videos?: Pick<VideoFrames, "decode">;
}

/** A request whose images and audio are all inline data, and whose videos are replaced by frames. */
export interface LoadedRequest {
  readonly request: GenerateRequest;
  /** Subtracts the request's files from the count of loaded bytes. Call once, when no thread needs the bytes any more. */
  release(): void;
}

export class MediaSources {
  readonly #readFile: ReadFile | null;
  readonly #fetcher: Pick<GuardedFetcher, "fetch">;
  readonly #videos: Pick<VideoFrames, "decode">;
  readonly #gate = new ClientGate(maxLoads);
  /** Total size in bytes of the loaded files that are not released. */
  #bytes = 0;
  /** The same by client. */
  readonly #bytesOf = new Map<string, number>();

  constructor({ readFile, fetcher = new GuardedFetcher(), videos = new VideoFrames() }: MediaSourcesOptions) {
    this.#readFile = readFile;
    this.#fetcher = fetcher;
    this.#videos = videos;
  }

  /**
   * Loads the images and audio of a request, and at most `maxFrames` frames of each video. If a file cannot be loaded, throws an
   * error with the name of its field. Throws `invalid_value` if the request's files are too large in total, and `queue_full` if
   * the files of all requests are.
   */
  async load(request: GenerateRequest, maxFrames: number, signal: AbortSignal): Promise<LoadedRequest> {
    const { client, media = [] } = request;
    if (media.every(({ source, kind }) => source.kind === "data" && kind !== "video")) {
      return { request, release: () => {} };
    }
    const failed = new AbortController();
    const ended = AbortSignal.any([signal, failed.signal]);
    const loaded: (readonly RequestMedia[])[] = media.map((item) => [item]);
    const waiting = media.entries();
    let bytes = 0;
    const count = (size: number, param: string): void => {
      bytes += size;
      const ofClient = this.#count(client, size);
      if (bytes > maxRequestBytes) throw tooLarge(param);
      if (ofClient > maxClientBytes) throw tooManyBytes("this client's requests", maxClientBytes);
      if (this.#bytes > maxBytes) throw tooManyBytes("the requests", maxBytes);
    };
    const loadNext = async (): Promise<void> => {
      for (const [i, item] of waiting) {
        const { source, param } = item;
        let content = source;
        if (source.kind !== "data") {
          const found = await this.#gate.pass(() => this.#loaded(source, item, ended), client);
          if (ended.aborted)
            throw new ServerError("cancelled", "the request ended while its images, videos or audio were loaded");
          count(found.byteLength, param);
          content = { kind: "data", bytes: found, digest: await digestOf(found) };
        }
        if (item.kind !== "video" || content.kind !== "data") {
          loaded[i] = [{ ...item, source: content }];
          continue;
        }
        const frames = await this.#framesOf({ ...content, client }, maxFrames, param, ended);
        if (ended.aborted) throw new ServerError("cancelled", "the request ended while its videos were decoded");
        for (const { bytes } of frames) count(bytes.byteLength, param);
        loaded[i] = frames.map(({ bytes, digest, seconds }, number) => {
          const source = { kind: "data", bytes, digest } as const;
          return { key: frameKey(item.key, number), kind: "frame", seconds, source, param };
        });
      }
    };
    const loads = Array.from({ length: maxRequestLoads }, () =>
      loadNext().catch((error) => {
        // Cancels the other loads of the request, because the bytes of a failed request are no longer counted.
        failed.abort();
        throw error;
      }),
    );
    try {
      await Promise.all(loads);
      return { request: { ...request, media: loaded.flat() }, release: this.#releaseOf(client, bytes) };
    } catch (error) {
      this.#count(client, -bytes);
      throw error;
    }
  }

  /** A separate method, so that the returned closure does not keep the loaded files alive. */
  #releaseOf(client: string, bytes: number): () => void {
    return () => void this.#count(client, -bytes);
  }

  /** Counts loaded bytes. Returns those of the client. */
  #count(client: string, bytes: number): number {
    this.#bytes += bytes;
    const ofClient = (this.#bytesOf.get(client) ?? 0) + bytes;
    if (ofClient > 0) this.#bytesOf.set(client, ofClient);
    else this.#bytesOf.delete(client);
    return ofClient;
  }

  async #loaded(
    source: Exclude<RequestMedia["source"], { readonly kind: "data" }>,
    { param, kind }: RequestMedia,
    signal: AbortSignal,
  ): Promise<Uint8Array> {
    try {
      return source.kind === "url" ? await this.#fetched(source.url, signal) : await this.#stored(source.id);
    } catch (error) {
      if (!(error instanceof ServerError) || error.code === "cancelled") throw error;
      throw new ServerError(error.code, `the ${kind ?? "image"} could not be loaded: ${error.message}`, {
        param,
        cause: error,
      });
    }
  }

  /** Returns the frames of a video. Throws an error with the name of the video's field. */
  async #framesOf(
    video: EncodedVideo,
    maxFrames: number,
    param: string,
    signal: AbortSignal,
  ): Promise<readonly VideoFrame[]> {
    try {
      return await this.#videos.decode(video, maxFrames, signal);
    } catch (error) {
      if (!(error instanceof ServerError) || error.code === "cancelled") throw error;
      throw new ServerError(error.code, error.message, { param, cause: error });
    }
  }

  async #fetched(url: string, signal: AbortSignal): Promise<Uint8Array> {
    const { body } = await this.#fetcher.fetch({ url, limits, checkHead: ({ status }) => checkStatus(status) }, signal);
    return body;
  }

  async #stored(id: string): Promise<Uint8Array> {
    if (this.#readFile === null) throw new ServerError("unsupported", "this server stores no files");
    return await this.#readFile(id);
  }
}

function checkStatus(status: number): void {
  if (status !== 200) throw new ServerError("invalid_value", `expected status 200, got ${status}`);
}

function tooLarge(param: string): ServerError {
  const message = `expected images, videos and audio of at most ${maxRequestBytes / mebibyte} MiB together at URLs and in files, got more; send fewer or smaller ones`;
  return new ServerError("invalid_value", message, { param });
}

function tooManyBytes(whose: string, limit: number): ServerError {
  const message = `${whose} in progress have more than ${limit / mebibyte} MiB of loaded images, videos and audio; try again later`;
  return new ServerError("queue_full", message);
}
