// Whisper with a tiny model: segments with timestamps, languages, windows, damaged models.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { identifySpeech, openSpeech } from "../../../engines/speech/open-speech.ts";
import type { TranscribingModel, TranscriptSegment } from "../../../engines/speech/speech.ts";
import { MelSpectrogram, windowFrames } from "../../../engines/speech/whisper/mel.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { tinySegments, writeTinyWhisper } from "../../fixtures/speech/tiny-whisper.ts";

const rate = 16_000;

describe("a Whisper model", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-whisper-"));
  let model: TranscribingModel;
  before(async () => {
    writeTinyWhisper(folder);
    model = await open(folder);
  });
  after(async () => {
    await model.dispose();
    rmSync(folder, { recursive: true, force: true });
  });

  async function open(path: string): Promise<TranscribingModel> {
    const opened = await openSpeech({ ...identifySpeech(path), path, threads: 1 });
    assert.ok(opened.task === "transcribe");
    return opened.model;
  }

  async function segmentsOf(seconds: number, language: string | null = null, signal = new AbortController().signal) {
    const segments: TranscriptSegment[] = [];
    const languages: string[] = [];
    const told = (found: string) => languages.push(found);
    const options = { language, translates: false, signal };
    for await (const some of model.transcribe(new Float32Array(seconds * rate), options, told)) segments.push(...some);
    return { segments, languages };
  }

  it("is recognised by its files, and lists its languages", () => {
    assert.deepEqual(identifySpeech(folder), { engine: "whisper", task: "transcribe" });
    assert.deepEqual(model.card.languages, ["en", "de"]);
  });

  it("writes segments with times, cut at pairs of time tokens", async () => {
    const { segments, languages } = await segmentsOf(2);
    assert.deepEqual(
      segments.map(({ start, end, text }) => ({ start, end, text })),
      tinySegments,
    );
    assert.deepEqual(languages, ["en"]);
    assert.ok(segments.every(({ averageLogprob }) => averageLogprob < 0 && averageLogprob > -1));
    assert.deepEqual((await segmentsOf(2, "de")).languages, ["de"]);
  });

  it("continues long audio in windows", async () => {
    const { segments, languages } = await segmentsOf(70);
    assert.deepEqual(
      segments.map(({ start }) => start),
      [0, 1, 30, 31, 60, 61],
    );
    assert.deepEqual(languages, ["en"]);
  });

  it("stops when its request is cancelled", async () => {
    await assert.rejects(segmentsOf(2, null, AbortSignal.abort()), { code: "cancelled" });
  });

  it("is rejected with a specific error if a file is damaged or of another kind", async () => {
    const broken = mkdtempSync(join(tmpdir(), "troupe-whisper-"));
    const failure = async (name: string, content: string | Uint8Array) => {
      writeTinyWhisper(broken);
      writeFileSync(join(broken, name), content);
      const error = await open(broken).then(
        () => null,
        (thrown: unknown) => thrown,
      );
      assert.ok(error instanceof ServerError, String(error));
      return `${error.code}: ${error.message}`;
    };
    assert.match(await failure("onnx/encoder_model.onnx", "no model"), /^model_file_invalid: .*encoder_model/);
    assert.match(await failure("tokenizer.json", "{}"), /^model_file_invalid: .*tokenizer of a Whisper model/);
    const encoder = readFileSync(join(folder, "onnx", "encoder_model.onnx"));
    assert.match(await failure("onnx/decoder_model_merged.onnx", encoder), /^model_file_invalid: .*expects the inputs/);
    assert.match(await failure("config.json", '{"model_type":"dia"}'), /^unsupported: .*dialogue model/);
    assert.match(await failure("config.json", '{"model_type":"llama"}'), /^model_file_invalid: .*"llama"/);
    rmSync(broken, { recursive: true });
  });
});

describe("the spectrogram of a tone", () => {
  it("is largest in the band of its frequency", () => {
    const mel = new MelSpectrogram(80);
    const bandOf = (hertz: number) => {
      const output = mel.of(Float32Array.from({ length: rate }, (_, i) => Math.sin((2 * Math.PI * hertz * i) / rate)));
      assert.equal(output.length, 80 * windowFrames);
      const column = Array.from({ length: 80 }, (_, band) => output[band * windowFrames + 50] as number);
      return column.indexOf(Math.max(...column));
    };
    // Mel bands are about 38 Hz apart up to 1000 Hz, and logarithmic above.
    assert.deepEqual([440, 1000, 4000].map(bandOf), [11, 26, 62]);
  });
});
