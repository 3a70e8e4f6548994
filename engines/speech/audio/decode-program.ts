// Program that decode.ts runs: decodes an audio file, and writes mono samples (32-bit floats) at 16,000 samples per second to stdout.
// It ends when the audio is longer than the limit.
//
// Arguments: the path of the file, its format, the maximum number of samples to write.
import { createReadStream } from "node:fs";
import decode from "audio-decode";
import { Resampler } from "./resample.ts";

const outputRate = 16_000;
/** Number of bytes that are decoded at once. In Opus and FLAC, a few bytes may contain thousands of samples of silence. */
const chunkBytes = 16 * 1024;
/**
 * Largest absolute value of a sample. Full scale is 1. Files of floats may have larger values, but models cannot compute with infinite
 * ones.
 */
const loudest = 2 ** 20;

interface Decoded {
  readonly channelData: readonly Float32Array[];
  readonly sampleRate: number;
}

/** Decodes a chunk; without a chunk, returns the remaining samples. */
type Decoder = (chunk?: Uint8Array) => Promise<Decoded>;

const [path = "", format = "wav", limit = "0"] = process.argv.slice(2);
const maxSamples = Number(limit);
const state: { resampler: Resampler | null; rate: number; written: number } = { resampler: null, rate: 0, written: 0 };

async function main(): Promise<void> {
  const decoder = await (decode as unknown as Record<string, () => Promise<Decoder>>)[format]?.();
  if (decoder === undefined) throw new Error(`no decoder for ${format}`);
  reading: for await (const chunk of createReadStream(path, { highWaterMark: chunkBytes })) {
    for (const piece of outputOf(await decoder(new Uint8Array(chunk as Uint8Array)))) {
      if (!(await write(piece))) break reading;
    }
  }
  if (state.written < maxSamples) for (const piece of outputOf(await decoder())) await write(piece);
  if (state.written < maxSamples && state.resampler !== null) await write(state.resampler.end());
}

/** Yields the resampled mix of all channels, in pieces. */
function* outputOf({ channelData, sampleRate }: Decoded): Generator<Float32Array> {
  const [first] = channelData;
  if (first === undefined || first.length === 0) return;
  if (!(sampleRate >= 1000 && sampleRate <= 768_000)) throw new Error(`a sample rate of ${sampleRate} cannot be used`);
  if (state.resampler !== null && state.rate !== sampleRate)
    throw new Error(`the sample rate changes from ${state.rate} to ${sampleRate}`);
  state.rate = sampleRate;
  state.resampler ??= new Resampler(sampleRate, outputRate);
  const step = 65_536;
  for (let at = 0; at < first.length; at += step) {
    const mixed = new Float32Array(Math.min(step, first.length - at));
    for (const channel of channelData) {
      for (let i = 0; i < mixed.length; i++)
        mixed[i] = (mixed[i] as number) + (channel[at + i] ?? 0) / channelData.length;
    }
    if (!mixed.every((sample) => Math.abs(sample) <= loudest)) {
      throw new Error(`a sample is no number, or beyond ${loudest} times full scale`);
    }
    yield state.resampler.push(mixed);
  }
}

/** Writes samples and waits until they are read. Returns false when the limit is reached. */
async function write(samples: Float32Array): Promise<boolean> {
  const part = samples.subarray(0, maxSamples - state.written);
  state.written += part.length;
  const bytes = new Uint8Array(part.slice().buffer);
  await new Promise<void>((resolve, reject) => {
    process.stdout.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
  return state.written < maxSamples;
}

// Without this handler, Node.js would also print the source line of the error, which may contain a whole compiled decoder.
main().catch((error: unknown) => {
  process.stderr.write(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
});
