// Audio formats with the real encoders and decoders: a tone is encoded and decoded in each format, and damaged files are
// rejected.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { sampleRate } from "../../../engines/speech/audio/audio-window.ts";
import { decodeAudio } from "../../../engines/speech/audio/decode.ts";
import { contentTypeOf, createEncoder } from "../../../engines/speech/audio/encode.ts";
import { type AudioFormat, audioFormats } from "../../../engines/speech/audio/encoder.ts";
import { pcm16 } from "../../../engines/speech/audio/pcm.ts";
import { resampled } from "../../../engines/speech/audio/resample.ts";
import type { ServerError } from "../../../runtime/errors.ts";

const rate = 22_050;
const folder = mkdtempSync(join(tmpdir(), "troupe-audio-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function tone(seconds: number, hertz: number, sampleRate = rate): Float32Array {
  return Float32Array.from(
    { length: seconds * sampleRate },
    (_, i) => 0.5 * Math.sin((2 * Math.PI * hertz * i) / sampleRate),
  );
}

async function encoded(format: AudioFormat, sentences: readonly Float32Array[]): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  const encoder = await createEncoder(format, rate, (bytes) => pieces.push(bytes));
  for (const [i, samples] of sentences.entries()) await encoder.add(samples, i === sentences.length - 1);
  await encoder.end();
  return Buffer.concat(pieces);
}

async function read(name: string, bytes: Uint8Array, seconds = 10): Promise<Float32Array> {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return await decodeAudio(path, seconds, new AbortController().signal);
}

/** Returns the strength of a frequency from 0 to 1, where 1 is a full-scale tone. */
function strength(samples: Float32Array, hertz: number, sampleRate: number): number {
  let [re, im] = [0, 0];
  for (const [i, sample] of samples.entries()) {
    re += sample * Math.cos((2 * Math.PI * hertz * i) / sampleRate);
    im += sample * Math.sin((2 * Math.PI * hertz * i) / sampleRate);
  }
  return (2 * Math.hypot(re, im)) / samples.length;
}

describe("audio of two sentences", () => {
  for (const format of audioFormats.filter((one) => one !== "pcm")) {
    it(`is read back from ${format} as the same tone`, async () => {
      const samples = await read(`tone.${format}`, await encoded(format, [tone(1, 440), tone(0.5, 440)]));
      assert.ok(Math.abs(samples.length / sampleRate - 1.5) < 0.15, `${samples.length / sampleRate} s`);
      const middle = samples.slice(sampleRate / 4, sampleRate / 4 + sampleRate / 2);
      assert.ok(strength(middle, 440, sampleRate) > 0.4, `${strength(middle, 440, sampleRate)}`);
      assert.ok(strength(middle, 1000, sampleRate) < 0.05);
    });
  }

  it("is 16-bit little-endian samples as pcm, whose rate is in the content type", async () => {
    assert.equal(contentTypeOf("pcm", rate), "audio/pcm; rate=22050; channels=1");
    const bytes = await encoded("pcm", [Float32Array.of(0, 1, -1, 2, Number.NaN)]);
    assert.deepEqual(
      [0, 2, 4, 6, 8].map((at) => bytes.readInt16LE(at)),
      [0, 32_767, -32_767, 32_767, 0],
    );
    assert.equal(pcm16(tone(1, 440)).length, 2 * rate);
  });
});

describe("resampling", () => {
  it("keeps tones below the new limit and removes those above it", () => {
    for (const [from, to] of [
      [44_100, 16_000],
      [22_050, 48_000],
      [8000, 16_000],
    ] as const) {
      const low = resampled(tone(0.5, 1000, from), from, to).slice(500, -500);
      assert.ok(Math.abs(strength(low, 1000, to) - 0.5) < 0.02, `${from} ${to} ${strength(low, 1000, to)}`);
    }
    const high = resampled(tone(0.5, 11_000, 44_100), 44_100, 16_000).slice(500, -500);
    assert.ok(Math.max(...high.map(Math.abs)) < 0.02);
  });
});

describe("an audio file that cannot be used", () => {
  const refused = (name: string, bytes: Uint8Array, seconds: number, code: string, pattern: RegExp) =>
    assert.rejects(
      read(name, bytes, seconds),
      (error: ServerError) => error.code === code && pattern.test(error.message),
    );

  it("is rejected with a specific error: empty, no audio, too long, damaged", async () => {
    await refused("empty", new Uint8Array(0), 10, "invalid_value", /got an empty one/);
    await refused("text", Buffer.from("no audio at all, but a text"), 10, "unsupported", /got a file of another kind/);
    await refused("png", Buffer.from("89504e470d0a1a0a0000000d49484452", "hex"), 10, "unsupported", /image\/png/);
    await refused("long", await encoded("wav", [tone(3, 440)]), 2, "invalid_value", /at most 2 s of audio/);
    await refused("cut.flac", (await encoded("flac", [tone(1, 440)])).subarray(0, 60), 10, "invalid_value", /flac/);
  });

  it("ends a small file that claims hours of silence at the limit", async () => {
    const silence = Buffer.alloc(60 * 8000, 0x80);
    const head = Buffer.alloc(44);
    head.write("RIFF\xff\xff\xff\xffWAVEfmt ", "latin1");
    for (const [at, value] of [
      [16, 16],
      [24, 8],
      [28, 8],
    ] as const)
      head.writeUInt32LE(value * (at === 16 ? 1 : 1000), at);
    for (const [at, value] of [
      [20, 1],
      [22, 1],
      [32, 1],
      [34, 8],
    ] as const)
      head.writeUInt16LE(value, at);
    head.write("data\xff\xff\xff\xff", 36, "latin1");
    await refused("silence", Buffer.concat([head, silence]), 10, "invalid_value", /at most 10 s of audio/);
  });
});
