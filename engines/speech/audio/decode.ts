// Audio decoder: turns an audio file into mono samples at 16,000 per second. A child process decodes each file, because a malicious file
// may exploit an error in its decoder. The process is killed if it exceeds its limits of time, memory or output.

import { open } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { fileTypeFromBuffer } from "file-type";
import { inOneLine, ServerError } from "../../../runtime/errors.ts";
import { runLimitedProgram } from "../../../runtime/program/limited-program.ts";
import { sampleRate } from "./audio-window.ts";
import { missingDecoder } from "./decoder-package.ts";

const memoryBytes = 768 * 2 ** 20;
const heapMiB = 384;
/** Number of bytes at the beginning of a file from which its format is detected. */
const headBytes = 4100;
const maxErrorLength = 200;
/**
 * Limit of a decoder's processor time: `secondsPerSecond` for each second of the maximum audio length, but at least `leastSeconds`. Any
 * decoder needs far less.
 */
const secondsPerSecond = 0.05;
const leastSeconds = 20;

const program = fileURLToPath(new URL("./decode-program.js", import.meta.url));

/** Names of the decoders in the package audio-decode, by the file extension that the package file-type detects. */
const decoders: Readonly<Record<string, string>> = {
  wav: "wav",
  mp3: "mp3",
  flac: "flac",
  opus: "opus",
  ogg: "oga",
  oga: "oga",
  m4a: "m4a",
  mp4: "m4a",
  aac: "aac",
  webm: "webm",
};
const accepted = "wav, mp3, flac, ogg (vorbis, opus), m4a, mp4, aac or webm";

/**
 * Decodes the audio file at `path`. Throws `invalid_value` for a file that has no audio, that is damaged, or that is longer than
 * `maxSeconds`; `unsupported` if the decoder is not installed or does not know the format.
 */
export async function decodeAudio(path: string, maxSeconds: number, signal: AbortSignal): Promise<Float32Array> {
  const missing = missingDecoder();
  if (missing !== null) throw new ServerError("unsupported", missing, { param: "file" });
  const format = await formatOf(path);
  const maxSamples = maxSeconds * sampleRate;
  const { samples, failure } = await run([path, format, String(maxSamples + 1)], maxSamples, maxSeconds, signal);
  if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled");
  if (samples.length > maxSamples) {
    throw invalid(`expected at most ${maxSeconds} s of audio (max_audio_secs), got more; send it in parts`);
  }
  if (failure !== null) throw undecodable(format, `cannot be decoded: ${failure}`);
  if (samples.length === 0) throw undecodable(format, "has no audio");
  return samples;
}

async function formatOf(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(headBytes), 0, headBytes, 0);
    if (bytesRead === 0) throw invalid(`expected an audio file (${accepted}), got an empty one`);
    const type = await fileTypeFromBuffer(new Uint8Array(buffer.subarray(0, bytesRead))).catch(() => undefined);
    const decoder = type === undefined ? undefined : decoders[type.ext];
    if (decoder !== undefined) return decoder;
    const got = type === undefined ? "a file of another kind" : `a file of type ${type.mime}`;
    throw new ServerError("unsupported", `expected an audio file (${accepted}), got ${got}`, { param: "file" });
  } finally {
    await file.close();
  }
}

interface Output {
  readonly samples: Float32Array;
  readonly failure: string | null;
}

async function run(
  args: readonly string[],
  maxSamples: number,
  maxSeconds: number,
  signal: AbortSignal,
): Promise<Output> {
  const cpuSeconds = Math.ceil(Math.max(leastSeconds, maxSeconds * secondsPerSecond));
  const outputBytes = (maxSamples + 1) * Float32Array.BYTES_PER_ELEMENT;
  const limits = { timeMs: 4 * cpuSeconds * 1000, cpuSeconds, memoryBytes, heapMiB, outputBytes };
  const { output, failure } = await runLimitedProgram(program, { args, limits, signal });
  // A Float32Array needs an aligned offset. A large output has its own memory, so it is aligned and need not be copied.
  const own = output.byteOffset % Float32Array.BYTES_PER_ELEMENT === 0 ? output : new Uint8Array(output);
  const samples = new Float32Array(own.buffer, own.byteOffset, own.byteLength >> 2);
  return { samples, failure: failure && inOneLine(failure).slice(0, maxErrorLength) };
}

function undecodable(format: string, problem: string): ServerError {
  return invalid(
    `the ${format} file ${problem}; expected undamaged audio (${accepted}): convert it, and send it again`,
  );
}

function invalid(message: string): ServerError {
  return new ServerError("invalid_value", message, { param: "file" });
}
