// Trials of images, audio files and videos: the server's own decoders, in processes with limits, decode the mutants (damaged
// files). Some mutants are sent to a server instead.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import type { TilingRules } from "../../engines/files/projector/image-rules.ts";
import { cutImage } from "../../engines/image-input/image-decoder.ts";
import { VideoFrames } from "../../engines/image-input/video/video-frames.ts";
import { decodeAudio } from "../../engines/speech/audio/decode.ts";
import { ServerError } from "../../runtime/errors.ts";
import { audioSources, imageSources, videoSources } from "../../test/fixtures/mutants/media-sources.ts";
import { diceOf, mutantOf, type Source } from "../../test/fixtures/mutants/mutate.ts";
import type { MediaServer } from "./media-server.ts";
import { judged, type MediaKind, type Outcome, type Trials } from "./outcome.ts";

/** Server that receives every `every`-th mutant (damaged file). */
interface ServerShare {
  readonly server: MediaServer;
  readonly every: number;
}

const maxSeconds = 60;
const maxFrames = 4;
const { signal } = new AbortController();
const rules: TilingRules = {
  tileSize: 28,
  variable: null,
  gridEdge: 56,
  slices: null,
  kernel: "cubic",
  padding: [0, 0, 0],
  mean: [0.5, 0.5, 0.5],
  deviation: [0.5, 0.5, 0.5],
};

const mediaSources: Readonly<Record<MediaKind, () => Promise<readonly Source[]>>> = {
  images: imageSources,
  audio: audioSources,
  video: videoSources,
};

/** Runs the trials, as many at a time as there are cores, and passes each outcome to `tell`. */
export async function runMedia(
  kind: MediaKind,
  { seed, first, count }: Trials,
  share: ServerShare | null,
  tell: (outcome: Outcome) => void,
): Promise<void> {
  const sources = await mediaSources[kind]();
  const folder = mkdtempSync(join(tmpdir(), "troupe-mutants-"));
  const read = readers(folder)[kind];
  const numbers = Array.from({ length: count }, (_, i) => first + i).values();
  const lanes = Array.from({ length: availableParallelism() }, async () => {
    for (const number of numbers) {
      const { name, bytes } = mutantOf(sources, diceOf(seed, number));
      const beginMs = performance.now();
      const isSent = share !== null && number % share.every === 0;
      const verdict = isSent
        ? await share.server.verdictOn(kind, bytes, number / share.every)
        : await verdictOf(kind, read(bytes, number));
      tell({ number, name: isSent ? `sent ${name}` : name, ...verdict, ms: performance.now() - beginMs });
    }
  });
  try {
    await Promise.all(lanes);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

type Read = (bytes: Buffer, number: number) => Promise<unknown>;

function readers(folder: string): Readonly<Record<MediaKind, Read>> {
  const videos = new VideoFrames();
  return {
    images: (bytes) => cutImage(bytes, rules, { maxEdge: null, client: "client", isFrame: false }),
    audio: async (bytes, number) => {
      const path = join(folder, String(number));
      writeFileSync(path, bytes);
      await decodeAudio(path, maxSeconds, signal).finally(() => rmSync(path));
    },
    video: (bytes, number) => videos.decode({ bytes, digest: String(number), client: "client" }, maxFrames, signal),
  };
}

async function verdictOf(kind: MediaKind, reading: Promise<unknown>): Promise<Pick<Outcome, "result" | "detail">> {
  try {
    await reading;
    return { result: "read", detail: "" };
  } catch (error) {
    if (error instanceof ServerError) return judged(kind, error.code, error.message);
    return { result: "broken", detail: `an error without a name: ${String(error)}` };
  }
}
