// Audio encoders: turn the samples of sentences into the bytes of a format, piece by piece. WAV and PCM are written here; the other
// formats need optional packages (mediabunny with its encoders, and @evan/opus).
import { ServerError } from "../../../runtime/errors.ts";
import { installCommand, isInstalled } from "../../../runtime/host/optional-packages.ts";
import type { AudioEncoder, AudioFormat, WriteBytes } from "./encoder.ts";
import { pcm16, wavHeader } from "./pcm.ts";

/** Packages of each format that is not built in. */
const packages: Readonly<Record<AudioFormat, readonly string[]>> = {
  wav: [],
  pcm: [],
  mp3: ["mediabunny", "@mediabunny/mp3-encoder"],
  flac: ["mediabunny", "@mediabunny/flac-encoder"],
  aac: ["mediabunny", "@mediabunny/aac-encoder"],
  opus: ["mediabunny", "@evan/opus"],
};

/** Returns the content type of a format. */
export function contentTypeOf(format: AudioFormat, sampleRate: number): string {
  if (format === "pcm") return `audio/pcm; rate=${sampleRate}; channels=1`;
  return { mp3: "audio/mpeg", opus: "audio/ogg; codecs=opus", aac: "audio/aac", flac: "audio/flac", wav: "audio/wav" }[
    format
  ];
}

/** Returns why a format cannot be written on this machine, with the command that installs the missing packages; null if it can. */
export function missingEncoder(format: AudioFormat): string | null {
  const missing = packages[format].filter((name) => !isInstalled(name));
  if (missing.length === 0) return null;
  return (
    `the format ${format} needs ${missing.join(" and ")}, which ${missing.length === 1 ? "is" : "are"} not installed: ` +
    `${installCommand(missing)}; wav and pcm need nothing`
  );
}

/** Creates an encoder. Throws `unsupported` if its packages are not installed. */
export async function createEncoder(format: AudioFormat, sampleRate: number, write: WriteBytes): Promise<AudioEncoder> {
  const missing = missingEncoder(format);
  if (missing !== null) throw new ServerError("unsupported", missing, { param: "response_format" });
  if (format === "pcm") return { add: async (samples) => write(pcm16(samples)), end: nothing, cancel: nothing };
  if (format === "wav") return wavEncoder(sampleRate, write);
  const { createCompressor } = await import("./compress.ts");
  return await createCompressor(format, sampleRate, write);
}

function wavEncoder(sampleRate: number, write: WriteBytes): AudioEncoder {
  let hasBegun = false;
  return {
    add: async (samples, isLast) => {
      const data = pcm16(samples);
      if (!hasBegun) write(wavHeader(sampleRate, isLast ? data.length : null));
      hasBegun = true;
      write(data);
    },
    end: nothing,
    cancel: nothing,
  };
}

async function nothing(): Promise<void> {}
