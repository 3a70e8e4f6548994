// Media sources: loads the images, videos and audio of requests that are URLs or stored files, on the main thread. Images and audio are
// decoded later; programs decode videos, and their frames take their places. The number of loads at the same time and the bytes that
// the requests keep are limited.
import type { GenerateRequest, RequestMedia } from "../../engines/generation.ts";
import { type EncodedVideo, type VideoFrame, VideoFrames } from "../../engines/image-input/video/video-frames.ts";
import { digestOf } from "../../engines/media/digest.ts";
import { frameKey } from "../../engines/media/media-tokens.ts";
import { ServerError } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import { GuardedFetcher } from "../../runtime/web/guarded-fetch.ts";
import type { FetchLimits } from "../../runtime/web/limits.ts";

const mebibyte = 2 ** 20;
/** Maximum size of a loaded file in bytes. */
const maxFileBytes = 64 * mebibyte;
/** Maximum size in bytes of the loaded files of one request, and of all requests whose prompts are not prepared. */
const maxRequestBytes = 128 * mebibyte;
const maxBytes = 512 * mebibyte;
/** Maximum number of files that are loaded at the same time: of one request, and of all. */
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
  /** null: the server stores no files. */
  readonly readFile: ReadFile | null;
  readonly fetcher?: Pick<GuardedFetcher, "fetch">;
  readonly videos?: Pick<VideoFrames, "decode">;
}

/** Request with all images and audio as data, and the frames of its videos. */
export interface LoadedRequest {
  readonly request: GenerateRequest;
  /** Ends the count of the loaded bytes. Call once, when no thread needs them any more. */
  release(): void;
}

export class MediaSources {
  readonly #readFile: ReadFile | null;
  readonly #fetcher: Pick<GuardedFetcher, "fetch">;
  readonly #videos: Pick<VideoFrames, "decode">;
  readonly #gate = new Gate(maxLoads);
  /** Size of the loaded files that are not released. */
  #bytes = 0;

  constructor({ readFile, fetcher = new GuardedFetcher(), videos = new VideoFrames() }: MediaSourcesOptions) {
    this.#readFile = readFile;
    this.#fetcher = fetcher;
    this.#videos = videos;
  }

  /**
   * Loads the images and audio of a request, and at most `maxFrames` frames of each video. Throws the error that names the field
   * of the file, `invalid_value` if the files of the request are too large together, and `queue_full` if those of all requests are.
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
      this.#bytes += size;
      if (bytes > maxRequestBytes) throw tooLarge(param);
      if (this.#bytes > maxBytes) throw tooManyBytes();
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
        loaded[i] = frames.map((frame, number) => {
          return { key: frameKey(item.key, number), kind: "frame", source: { kind: "data", ...frame }, param };
        });
      }
    };
    const loads = Array.from({ length: maxRequestLoads }, () =>
      loadNext().catch((error) => {
        // Ends the other loads of the request. Their bytes are not counted.
        failed.abort();
        throw error;
      }),
    );
    try {
      await Promise.all(loads);
      return { request: { ...request, media: loaded.flat() }, release: this.#releaseOf(bytes) };
    } catch (error) {
      this.#bytes -= bytes;
      throw error;
    }
  }

  /** A method of its own, so that the returned function does not keep the loaded files. */
  #releaseOf(bytes: number): () => void {
    return () => {
      this.#bytes -= bytes;
    };
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

  /** Throws the error that names the field of the video. */
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

function tooManyBytes(): ServerError {
  const message = `the requests in progress have more than ${maxBytes / mebibyte} MiB of loaded images, videos and audio; try again later`;
  return new ServerError("queue_full", message);
}
