// Compressed audio: MP3, FLAC and AAC by mediabunny and its encoders, Opus by @evan/opus in mediabunny's Ogg files. The packages are
// optional, so each is imported when its format is used.
import type { AudioCodec, OutputFormat, StreamTargetChunk } from "mediabunny";
import type { AudioEncoder, AudioFormat, WriteBytes } from "./encoder.ts";
import { pcm16 } from "./pcm.ts";
import { Resampler } from "./resample.ts";

type Compressed = Exclude<AudioFormat, "wav" | "pcm">;

/** Bit rate in bits per second. Speech needs less than music. */
const bitrate = 64_000;
/** Internal sample rate of Opus in Hz, and samples in a packet of 20 ms. */
const opusRate = 48_000;
const opusFrame = 960;

/** Returns a stream that forwards the bytes of a file. The formats that use it never change bytes that were already written. */
function appended(write: WriteBytes): WritableStream<StreamTargetChunk> {
  return new WritableStream({ write: ({ data }) => write(data.slice()) });
}

/** Stream that keeps a whole file. The header of a FLAC file contains the file's length, so it changes until the end. */
class WholeFile {
  readonly stream = new WritableStream<StreamTargetChunk>({ write: (chunk) => this.#write(chunk) });
  #bytes = Buffer.alloc(0);
  #length = 0;

  get bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  #write({ data, position }: StreamTargetChunk): void {
    const end = position + data.length;
    if (end > this.#bytes.length) this.#bytes = Buffer.concat([this.#bytes], Math.max(end, 2 * this.#bytes.length));
    this.#bytes.set(data, position);
    this.#length = Math.max(this.#length, end);
  }
}

export async function createCompressor(
  format: Compressed,
  sampleRate: number,
  write: WriteBytes,
): Promise<AudioEncoder> {
  if (format === "opus") return await createOpus(sampleRate, write);
  const media = await import("mediabunny");
  await register(format);
  const codecs: Readonly<Record<typeof format, readonly [AudioCodec, OutputFormat]>> = {
    mp3: ["mp3", new media.Mp3OutputFormat({ xingHeader: false })],
    flac: ["flac", new media.FlacOutputFormat()],
    aac: ["aac", new media.AdtsOutputFormat()],
  };
  const [codec, outputFormat] = codecs[format];
  const whole = format === "flac" ? new WholeFile() : null;
  const target = new media.StreamTarget(whole?.stream ?? appended(write));
  const output = new media.Output({ format: outputFormat, target });
  const source = new media.AudioSampleSource({ codec, bitrate });
  output.addAudioTrack(source);
  await output.start();
  let count = 0;
  return {
    add: async (samples) => {
      const sample = new media.AudioSample({
        data: samples,
        format: "f32" as const,
        numberOfChannels: 1,
        sampleRate,
        timestamp: count / sampleRate,
      });
      count += samples.length;
      try {
        await source.add(sample);
      } finally {
        sample.close();
      }
    },
    end: async () => {
      await output.finalize();
      if (whole !== null) write(whole.bytes);
    },
    // The encoder of mediabunny is a worker thread, which runs until the output is finalized or cancelled.
    cancel: () => output.cancel(),
  };
}

const registered = new Set<Compressed>();

/** Registers an encoder with mediabunny, once. */
async function register(format: Exclude<Compressed, "opus">): Promise<void> {
  if (registered.has(format)) return;
  registered.add(format);
  if (format === "mp3") (await import("@mediabunny/mp3-encoder")).registerMp3Encoder();
  else if (format === "flac") (await import("@mediabunny/flac-encoder")).registerFlacEncoder();
  else (await import("@mediabunny/aac-encoder")).registerAacEncoder();
}

async function createOpus(sampleRate: number, write: WriteBytes): Promise<AudioEncoder> {
  const [media, { Encoder }] = await Promise.all([import("mediabunny"), import("@evan/opus")]);
  const encoder = new Encoder({ channels: 1, sample_rate: opusRate, application: "audio" });
  encoder.bitrate = bitrate;
  const target = new media.StreamTarget(appended(write));
  const output = new media.Output({ format: new media.OggOutputFormat(), target });
  const source = new media.EncodedAudioPacketSource("opus");
  output.addAudioTrack(source);
  await output.start();
  const resampler = new Resampler(sampleRate, opusRate);
  const decoderConfig = { codec: "opus", numberOfChannels: 1, sampleRate: opusRate, description: opusHead(sampleRate) };
  let rest = new Float32Array(0);
  let packets = 0;
  const encode = async (samples: Float32Array): Promise<void> => {
    const joined = new Float32Array(rest.length + samples.length);
    joined.set(rest);
    joined.set(samples, rest.length);
    let at = 0;
    for (; at + opusFrame <= joined.length; at += opusFrame) {
      const data = encoder.encode(pcm16(joined.subarray(at, at + opusFrame)));
      const packet = new media.EncodedPacket(data, "key", (packets * opusFrame) / opusRate, opusFrame / opusRate);
      await source.add(packet, packets === 0 ? { decoderConfig } : undefined);
      packets++;
    }
    rest = joined.slice(at);
  };
  return {
    add: (samples) => encode(resampler.push(samples)),
    end: async () => {
      await encode(resampler.end());
      // The last packet is padded with silence. One more packet contains the samples that the encoder has delayed.
      await encode(new Float32Array(2 * opusFrame - rest.length));
      await output.finalize();
    },
    cancel: () => output.cancel(),
  };
}

/** Number of samples (at 48 kHz) that a decoder drops at the beginning, because the encoder delays the audio. */
const preSkip = 312;

/** Returns the identification header of an Opus stream with one channel. */
function opusHead(sampleRate: number): Uint8Array {
  const head = new DataView(new ArrayBuffer(19));
  for (const [i, letter] of [..."OpusHead"].entries()) head.setUint8(i, letter.charCodeAt(0));
  head.setUint8(8, 1);
  head.setUint8(9, 1);
  head.setUint16(10, preSkip, true);
  head.setUint32(12, sampleRate, true);
  return new Uint8Array(head.buffer);
}
