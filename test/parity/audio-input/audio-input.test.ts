// Audio input compared with reference implementations: the embeddings of generated audio projector files of each kind, and the logits
// after a prompt with audio on both engines. The references were computed once: all but voxtral by llama.cpp's multimodal library
// (fixtures/image-input/mtmd-reference.cpp), voxtral by transformers (fixtures/audio-input/voxtral-reference.py).
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { Batch } from "../../../engines/batch.ts";
import type { ModelSpec } from "../../../engines/engine.ts";
import type { AudioProjectorKind } from "../../../engines/files/projector/audio-projector.ts";
import { openEngine } from "../../../engines/open-engine.ts";
import { AudioEncoder } from "../../../engines/wasm/audio/audio-encoder.ts";
import { cutIntoWindows } from "../../../engines/wasm/audio/audio-windows.ts";
import { type TinyAudioModel, tones, writeTinyAudioModel } from "../../fixtures/audio-input/tiny-audio-model.ts";
import { tinyWidth } from "../../fixtures/models/tiny-architectures.ts";

/** Samples of an array (every `step`th value), and the range of all its values. */
interface Sampled {
  readonly step: number;
  readonly range: number;
  readonly values: readonly number[];
}

interface Reference {
  readonly embeddings: Sampled;
  /**
   * Tokens of the prompt "hello AUDIO world, what is it" before and after the embeddings, and the logits after the prompt;
   * absent if not computed.
   */
  readonly prompt?: { readonly before: readonly number[]; readonly after: readonly number[]; readonly logits: Sampled };
}

/** Maximum difference between a computed value and its reference, as a fraction of the range of the reference values. */
const tolerance = 0.005;
/**
 * Maximum difference of the llama engine's logits from the reference, as a fraction of their range. It is larger than `tolerance`:
 * the reference was computed without flash attention, and the rounding error of flash attention grows with the prompt (0.2 % of the
 * range after 375 embeddings, 0.6 % after 750, also with llama.cpp's own embeddings).
 */
const llamaTolerance = 0.01;
const source = new URL("../../../../test/fixtures/audio-input/mtmd-references.json", import.meta.url);
const references = JSON.parse(readFileSync(source, "utf8")) as Record<AudioProjectorKind, Reference>;
const folder = mkdtempSync(join(tmpdir(), "troupe-audio-input-"));
const samples = tones(7);
/** Number of embeddings of `samples`. */
const counts = { ultravox: 375, qwen2a: 750, voxtral: 375, gemma4a: 175, gemma4ua: 175, lfm2a: 88 };
after(() => rmSync(folder, { recursive: true, force: true }));

function assertClose(values: Float32Array, { step, range, values: expected }: Sampled, most = tolerance): void {
  assert.equal(Math.ceil(values.length / step), expected.length);
  const differences = expected.map((value, i) => Math.abs(value - (values[i * step] as number)));
  const worst = Math.max(...differences) / range;
  assert.ok(worst <= most, `differs by ${(100 * worst).toFixed(3)} % of the range`);
}

for (const kind of ["ultravox", "qwen2a", "voxtral", "gemma4a", "gemma4ua", "lfm2a"] as const) {
  describe(`audio projector ${kind}`, () => {
    let files: TinyAudioModel;
    let embeddings: Float32Array;
    before(async () => {
      files = await writeTinyAudioModel(folder, kind);
    });

    // With two and more threads, some have no rows of a conformer's later convolutions; three and five make the token ranges unequal.
    for (const threads of kind === "gemma4a" || kind === "lfm2a" ? [1, 2, 3, 5] : [1, 2]) {
      it(`computes the embeddings on ${threads} threads`, async () => {
        const encoder = await AudioEncoder.load(files.mmproj, threads);
        try {
          const windows = encoder.windows(samples);
          assert.equal(windows.length, 1);
          embeddings = encoder.encode(windows[0] as Float32Array);
          assert.equal(embeddings.length / tinyWidth, counts[kind]);
          assertClose(embeddings, references[kind].embeddings);
        } finally {
          encoder.dispose();
        }
      });
    }

    const { prompt } = references[kind];
    if (prompt === undefined) return;
    for (const engine of ["wasm", "llama"] as const) {
      it(`computes the logits after a prompt with the audio on ${engine}, however it is chunked`, async () => {
        const count = embeddings.length / tinyWidth;
        const spec: ModelSpec = {
          ...{ path: files.model, maxSequences: 2, maxBatchTokens: 1024, maxModelLength: 1024, kvBudget: null },
          ...{
            kvType: "f16",
            blockTokens: 32,
            pagedKv: null,
            extraLogitsRows: 4,
            threads: 2,
            mmap: true,
            gpuLayers: 0,
          },
          ...{ abortFlag: null, computeLock: null },
          audio: {
            ...{
              projector: kind,
              windowTokens: count,
              path: files.mmproj,
              maxAudio: 1,
              maxSeconds: 60,
              cacheBytes: 0,
              maxMediaBytesInFlight: 2 ** 30,
            },
          },
        };
        const model = await (await openEngine(engine)).load(spec, () => {});
        try {
          const tokens = Int32Array.from([...prompt.before, ...Array<number>(count).fill(-1), ...prompt.after]);
          const from = prompt.before.length;
          const spans = [{ from, to: from + count, embeddings, attendsAhead: false, grid: null }];
          for (const chunk of [1024, 200]) {
            model.kv.reserve(0, tokens.length);
            const batch = new Batch(2, 1024);
            for (let at = 0; at < tokens.length; at += chunk) {
              const end = Math.min(tokens.length, at + chunk);
              batch.clear();
              batch.addRow(0, tokens, at, end, Number(end === tokens.length), 0);
              batch.embed(spans);
              const { logits, logitsRow } = model.step(batch);
              if (end < tokens.length) continue;
              const { vocabSize } = model.card;
              const first = (logitsRow[0] as number) * vocabSize;
              assertClose(
                logits.slice(first, first + vocabSize),
                prompt.logits,
                engine === "llama" ? llamaTolerance : tolerance,
              );
            }
            model.kv.release(0);
          }
        } finally {
          model.dispose();
        }
      });
    }
  });
}

/** Numbers of samples, and of the embeddings of all their windows. */
const lengths = [1, 640, 51_360, 480_000, 480_001, 531_360];
const embeddingsOf = {
  gemma4a: [1, 1, 80, 750, 751, 830],
  gemma4ua: [1, 1, 81, 750, 751, 831],
  // Two windows of equal length for more than 30 seconds.
  lfm2a: [1, 1, 41, 376, 376, 416],
};
for (const [kind, expected] of Object.entries(embeddingsOf) as ["gemma4a" | "gemma4ua" | "lfm2a", number[]][]) {
  it(`has embeddings for the length of the audio, not for whole windows (${kind})`, async () => {
    const { mmproj } = await writeTinyAudioModel(folder, kind);
    const encoder = await AudioEncoder.load(mmproj, 2);
    try {
      for (const [i, length] of lengths.entries()) {
        const parts = encoder.windows(tones(length / 16_000)).map((window) => encoder.encode(window));
        const counts = parts.map((part) => part.length / tinyWidth);
        const cut = cutIntoWindows(encoder.file.rules, length).map(({ embeddings: count }) => count);
        assert.deepEqual(counts, cut, `${length} samples`);
        assert.equal(
          counts.reduce((sum, count) => sum + count, 0),
          expected[i],
          `${length} samples`,
        );
        assert.ok(
          parts.every((part) => part.every(Number.isFinite)),
          `${length} samples`,
        );
      }
      // The embeddings do not depend on what the encoder computed before.
      const [alone] = encoder.windows(samples);
      assertClose(encoder.encode(alone as Float32Array), references[kind].embeddings);
    } finally {
      encoder.dispose();
    }
  });
}

it("cuts long audio into windows of one spectrogram", async () => {
  const { mmproj } = await writeTinyAudioModel(folder, "qwen2a");
  const encoder = await AudioEncoder.load(mmproj, 1);
  try {
    const [first, second, ...others] = encoder.windows(tones(31));
    assert.equal(others.length, 0);
    const [alone] = encoder.windows(tones(30));
    // The last frames of the first window overlap the beginning of the second, so they are not compared.
    const bands = encoder.file.sizes.bands;
    for (let band = 0; band < bands; band++) {
      for (const frame of [0, 1500, 2990]) {
        const at = band * 3000 + frame;
        assert.ok(Math.abs((first?.[at] as number) - (alone?.[at] as number)) < 0.05);
      }
    }
    assert.ok((second?.[50] as number) > (second?.[2000] as number), "the end of the second window is silent");
  } finally {
    encoder.dispose();
  }
});
