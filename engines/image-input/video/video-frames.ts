// Video frames: the evenly spaced frames of a video that are passed to a model, each as an encoded image. Videos are decoded by ffmpeg,
// animated GIF and WebP files by sharp. The frames of recent videos are kept, because clients send a video again with each message of a
// conversation.
import { fileURLToPath } from "node:url";
import { inOneLine, ServerError } from "../../../runtime/errors.ts";
import { withTemporaryFile } from "../../../runtime/host/temporary-file.ts";
import { type ProgramLimits, runLimitedProgram } from "../../../runtime/program/limited-program.ts";
import { Gate } from "../../../runtime/queues/gate.ts";
import { digestOf } from "../../media/digest.ts";
import { maxPixels } from "../image-decoder.ts";
import { splitOutput } from "../image-program.ts";
import type { AnimationHead } from "./animation-frames.ts";
import {
  findVideoPrograms,
  frameAt,
  frameTimes,
  maxFrameEdge,
  secondsOf,
  undecodable,
  type VideoPrograms,
} from "./ffmpeg.ts";
import { sampledIndices } from "./sampled-indices.ts";

/** Maximum number of videos that are decoded at the same time. */
const maxDecodes = 2;
/** Maximum time for decoding a video, in milliseconds. */
const maxVideoMs = 120_000;
const mebibyte = 2 ** 20;
/** Maximum size in bytes of the frames of one video, and of all frames that are kept. */
const maxVideoBytes = 128 * mebibyte;
const maxKeptBytes = 128 * mebibyte;
const maxErrorLength = 300;
const limits: ProgramLimits = {
  timeMs: 60_000,
  cpuSeconds: 60,
  memoryBytes: 1024 * mebibyte,
  heapMiB: 256,
  outputBytes: maxVideoBytes,
};
const animationProgram = fileURLToPath(new URL("./animation-frames.js", import.meta.url));

export const ffmpegAdvice =
  "videos are decoded by the programs ffmpeg and ffprobe, which were not found when the server started: install them, " +
  "for example with apt-get install ffmpeg, and start the server again";

/** Frame of a video: an encoded image (PNG). */
export interface VideoFrame {
  readonly bytes: Uint8Array;
  /** SHA-256 of the bytes, in hexadecimal digits. */
  readonly digest: string;
  /** Time in the video, in seconds. */
  readonly seconds: number;
}

type DecodedFrame = Omit<VideoFrame, "digest">;

/** Video to decode. */
export interface EncodedVideo {
  readonly bytes: Uint8Array;
  readonly digest: string;
  readonly client: string;
}

export class VideoFrames {
  readonly #programs: VideoPrograms | null;
  readonly #gate = new Gate(maxDecodes);
  /** Frames of recent videos, by digest and maximum number of frames. Least recently used first. */
  readonly #kept = new Map<string, readonly VideoFrame[]>();
  #keptBytes = 0;

  /** `programs`: null if ffmpeg is not installed. */
  constructor(programs = findVideoPrograms()) {
    this.#programs = programs;
  }

  /**
   * Returns at most `maxFrames` frames of a video, evenly spaced. Throws `invalid_value` if it cannot be decoded or exceeds a
   * limit, `unsupported` if ffmpeg is missing.
   */
  async decode(video: EncodedVideo, maxFrames: number, signal: AbortSignal): Promise<readonly VideoFrame[]> {
    const key = `${video.digest} ${maxFrames}`;
    const known = this.#kept.get(key);
    if (known !== undefined) {
      this.#kept.delete(key);
      this.#kept.set(key, known);
      return known;
    }
    const images = await this.#gate.pass(() => this.#images(video.bytes, maxFrames, signal), video.client);
    const frames = await Promise.all(images.map(async (image) => ({ ...image, digest: await digestOf(image.bytes) })));
    this.#keep(key, frames);
    return frames;
  }

  async #images(bytes: Uint8Array, maxFrames: number, signal: AbortSignal): Promise<readonly DecodedFrame[]> {
    const ended = AbortSignal.any([signal, AbortSignal.timeout(maxVideoMs)]);
    try {
      return isAnimation(bytes)
        ? await animationFrames(bytes, maxFrames, ended)
        : await this.#ffmpegFrames(bytes, maxFrames, ended);
    } catch (error) {
      if (signal.aborted || !ended.aborted) throw error;
      throw undecodable(`it takes longer than ${maxVideoMs / 1000} s`);
    }
  }

  async #ffmpegFrames(bytes: Uint8Array, maxFrames: number, signal: AbortSignal): Promise<readonly DecodedFrame[]> {
    const programs = this.#programs;
    if (programs === null) throw new ServerError("unsupported", ffmpegAdvice);
    return await withTemporaryFile("video", bytes, async (path) => {
      const times = await frameTimes(programs, path, signal);
      const frames: DecodedFrame[] = [];
      let size = 0;
      for (const index of sampledIndices(times.times.length, maxFrames)) {
        const frame = await frameAt(programs, path, { times, index }, signal);
        // The last frames of a truncated file cannot be decoded.
        if (frame === null) continue;
        frames.push({ bytes: frame, seconds: secondsOf(times, index) });
        size += frame.length;
        if (size > maxVideoBytes) throw undecodable(`its frames have more than ${maxVideoBytes / mebibyte} MiB`);
      }
      if (frames.length === 0) throw undecodable("none of its frames can be decoded");
      return frames;
    });
  }

  #keep(key: string, frames: readonly VideoFrame[]): void {
    const size = sizeOf(frames);
    if (size > maxKeptBytes) return;
    // Another request may have decoded the same video in the meantime.
    this.#keptBytes += size - sizeOf(this.#kept.get(key) ?? []);
    this.#kept.set(key, frames);
    for (const [oldest, kept] of this.#kept) {
      if (this.#keptBytes <= maxKeptBytes) return;
      this.#kept.delete(oldest);
      this.#keptBytes -= sizeOf(kept);
    }
  }
}

function sizeOf(frames: readonly VideoFrame[]): number {
  return frames.reduce((sum, { bytes }) => sum + bytes.length, 0);
}

/** Whether a file is a GIF or WebP image. */
function isAnimation(bytes: Uint8Array): boolean {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.length, 12)).toString("latin1");
  return head.startsWith("GIF8") || /^RIFF.{4}WEBP/s.test(head);
}

async function animationFrames(bytes: Uint8Array, maxFrames: number, signal: AbortSignal): Promise<DecodedFrame[]> {
  const args = [`--frames=${maxFrames}`, `--maxPixels=${maxPixels}`, `--maxEdge=${maxFrameEdge}`];
  const { output, failure } = await runLimitedProgram(animationProgram, { args, limits, input: bytes, signal });
  if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled while its video was decoded");
  if (failure !== null) throw undecodable(inOneLine(failure).slice(0, maxErrorLength));
  const { head, body } = splitOutput<AnimationHead>(output);
  let end = 0;
  return head.frames.map(({ size, seconds }) => {
    end += size;
    return { bytes: new Uint8Array(body.subarray(end - size, end)), seconds };
  });
}
