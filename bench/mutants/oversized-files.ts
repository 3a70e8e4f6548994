// Oversized files: small files with huge decoded contents. Each is sent to a server, which must read it or reject it with a message,
// within its limits of time and memory.
import { ffmpegTone, imageSources } from "../../test/fixtures/mutants/media-sources.ts";
import {
  blackPng,
  floatWav,
  longGif,
  manyStreams,
  silentFlac,
  silentMp3,
  silentOpus,
  silentWav,
} from "../../test/fixtures/mutants/oversized-files.ts";
import type { Answer, MediaServer } from "./media-server.ts";
import { PeakMemory } from "./peak-memory.ts";

interface OversizedFile {
  readonly name: string;
  /** Pattern of the error message with which the server rejects the file; null if the server reads it. */
  readonly refusal: RegExp | null;
  send(server: MediaServer): Promise<Answer>;
}

export interface OversizedOutcome {
  readonly name: string;
  readonly answer: Answer;
  readonly ms: number;
  readonly peak: { readonly allMiB: number; readonly largestChildMiB: number };
  readonly holds: boolean;
}

const tenHours = 36_000;
const tooLong = /at most 1800 s of audio \(max_audio_secs\)/;

/** Files that the server reads or rejects quickly. */
export const quickFiles: readonly OversizedFile[] = [
  {
    name: "PNG of 20,000 x 20,000 pixels",
    refusal: /it has 20000 x 20000 pixels; expected .* at most 67108864 pixels/,
    send: async (server) => server.sendImages([await blackPng(20_000, 20_000, "grey1")]),
  },
  {
    name: "JPEG whose head says 60,000 x 60,000 pixels",
    refusal: /it has 60000 x 60000 pixels; expected/,
    send: async (server) => server.sendImages([await jpegOf(60_000)]),
  },
  {
    // The decoder fills in the missing pixels.
    name: "JPEG whose head says 3000 x 3000 pixels",
    refusal: null,
    send: async (server) => server.sendImages([await jpegOf(3000)]),
  },
  {
    name: "WAV whose head says 10 hours, with 2 seconds",
    refusal: null,
    send: (server) => server.transcribe(silentWav(2, tenHours)),
  },
  {
    name: "WAV without channels",
    refusal: /has no audio; expected/,
    send: (server) => server.sendAudio(wavWith(22, 0)),
  },
  {
    name: "WAV of 10^9 samples per second",
    refusal: /a sample rate of 1000000000 cannot be used; expected/,
    send: (server) => server.transcribe(wavWith(24, 1e9)),
  },
  {
    name: "WAV of floats that are no numbers",
    refusal: /a sample is no number, .*; expected/,
    send: (server) => server.sendAudio(floatWav(Number.NaN)),
  },
  {
    name: "WAV of floats of 10^38",
    refusal: /a sample is no number, or beyond 1048576 times full scale; expected/,
    send: (server) => server.transcribe(floatWav(1e38)),
  },
  { name: "16 images (max_num_images)", refusal: null, send: async (server) => server.sendImages(await pictures(16)) },
  {
    name: "17 images",
    refusal: /has 17 images or videos; this model takes at most 16 \(max_num_images\)/,
    send: async (server) => server.sendImages(await pictures(17)),
  },
];

const slowFiles: readonly OversizedFile[] = [
  {
    name: "PNG of 8000 x 8000 pixels of 16 bits (512 MB)",
    refusal: null,
    send: async (server) => server.sendImages([await blackPng(8000, 8000, "rgba16")]),
  },
  { name: "GIF of 100,000 frames as an image", refusal: null, send: (server) => server.sendImages([longGif(100_000)]) },
  { name: "GIF of 100,000 frames as a video", refusal: null, send: (server) => server.watch(longGif(100_000)) },
  { name: "10 h of silence as WAV", refusal: tooLong, send: (server) => server.transcribe(silentWav(tenHours)) },
  { name: "10 h of silence as FLAC", refusal: tooLong, send: (server) => server.transcribe(silentFlac(tenHours)) },
  {
    name: "10 h of silence as FLAC, heard",
    refusal: tooLong,
    send: (server) => server.sendAudio(silentFlac(tenHours)),
  },
  { name: "10 h of silence as Opus", refusal: tooLong, send: (server) => server.transcribe(silentOpus(tenHours)) },
  { name: "10 h of silence as MP3", refusal: tooLong, send: (server) => server.transcribe(silentMp3(tenHours)) },
  { name: "Ogg of 1000 streams", refusal: null, send: (server) => server.transcribe(manyStreams(1000)) },
  { name: "m4a of 1000 streams", refusal: null, send: (server) => server.transcribe(m4aOf(1000)) },
  {
    name: "70 MiB of audio",
    refusal: /max_audio_bytes|at most/,
    send: (server) => server.transcribe(Buffer.concat([silentWav(1), Buffer.alloc(70 * 2 ** 20)])),
  },
];

export const oversizedFiles: readonly OversizedFile[] = [...quickFiles, ...slowFiles];

export async function runOversized(
  { name, refusal, send }: OversizedFile,
  server: MediaServer,
): Promise<OversizedOutcome> {
  const memory = new PeakMemory(server.pid);
  const beginMs = performance.now();
  const answer = await send(server).catch((error: unknown) => ({
    status: 0,
    code: "no answer",
    message: String(error),
  }));
  memory.stop();
  const holds =
    refusal === null
      ? answer.status === 200
      : answer.status >= 400 && answer.status < 500 && refusal.test(answer.message);
  return { name, answer, ms: performance.now() - beginMs, peak: memory, holds: holds && !server.hasEnded };
}

/** Returns a JPEG whose frame header claims a size of `side` x `side` pixels. */
async function jpegOf(side: number): Promise<Buffer> {
  const source = (await imageSources()).find(({ name }) => name === "jpeg");
  const bytes = Buffer.from(source?.bytes ?? []);
  const frame = bytes.indexOf(Buffer.from([0xff, 0xc0]));
  bytes.writeUInt16BE(side, frame + 5);
  bytes.writeUInt16BE(side, frame + 7);
  return bytes;
}

function wavWith(at: number, value: number): Buffer {
  const bytes = silentWav(2);
  if (at === 22) bytes.writeUInt16LE(value, at);
  else bytes.writeUInt32LE(value, at);
  return bytes;
}

async function pictures(count: number): Promise<readonly Buffer[]> {
  return await Promise.all(Array.from({ length: count }, (_, i) => blackPng(20 + i, 20, "rgb8")));
}

function m4aOf(streams: number): Buffer {
  return ffmpegTone("a.m4a", 1, ["-c:a", "aac", ...Array<string[]>(streams).fill(["-map", "0:a"]).flat()]);
}
