// Kokoro with its real weights: Japanese phonemes are compared with those of the Python package that contains the model, the audio with
// that of Python's onnxruntime for the same phonemes. Also tests English voices in the file layout of the model hub. kokoro-reference.py
// wrote the references.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { wordErrors } from "../../bench/speech/sentences.ts";
import { japanesePhonemes } from "../../engines/speech/voices/kokoro/japanese.ts";
import { type KokoroModel, openKokoro } from "../../engines/speech/voices/kokoro/kokoro.ts";
import { type KokoroFolders, kokoroFolders } from "../fixtures/speech/kokoro-model.ts";

interface Reference {
  readonly text: string;
  /** Phonemes that the Python package returns. */
  readonly phonemes: string;
  /** Number of samples that Python's onnxruntime generates from the phonemes with the voice jf_alpha; 0 = not computed. */
  readonly samples: number;
  /** Root mean square of each 50 ms of the samples. The samples themselves differ, because the model adds random noise. */
  readonly loudness: readonly number[];
}

const source = new URL("../../../test/fixtures/speech/kokoro-references.json", import.meta.url);
const references = JSON.parse(readFileSync(source, "utf8")) as readonly Reference[];
const lacksMecab =
  process.env.CI === undefined && spawnSync("mecab", ["--version"]).status !== 0 && "mecab is not installed";
const rate = 24_000;
const frame = rate / 20;

function loudnessOf(samples: Float32Array): number[] {
  return Array.from({ length: Math.floor(samples.length / frame) }, (_, i) => {
    const part = samples.subarray(i * frame, (i + 1) * frame);
    return Math.sqrt(part.reduce((sum, sample) => sum + sample * sample, 0) / frame);
  });
}

describe("Kokoro with its weights", () => {
  const { signal } = new AbortController();
  let folders: KokoroFolders;
  let model: KokoroModel;
  before(async () => {
    folders = await kokoroFolders();
    model = await openKokoro({ path: folders.hub, threads: 2 });
  });
  after(() => model.dispose());

  const speak = (text: string, voice: string, speed = 1) => model.speak({ text, voice, speed, signal });

  it("has voices of eight languages in the layout of the hub, and Japanese ones in the archive of the Python package", async () => {
    const languages = [...new Set(model.card.voices.map(({ language }) => language))];
    assert.deepEqual(languages, ["en-us", "en-gb", "es", "fr-fr", "hi", "it", "ja", "pt-br"]);
    const other = await openKokoro({ path: folders.archive, threads: 2 });
    assert.deepEqual(
      other.card.voices.map(({ id }) => id),
      ["jf_alpha", "jf_gongitsune", "jf_nezumi", "jf_tebukuro", "jm_kumo"],
    );
    await other.dispose();
  });

  it("speaks English, faster at a higher speed", async () => {
    const text = "The quick brown fox jumps over the lazy dog.";
    const [plain, fast] = [await speak(text, "af_heart"), await speak(text, "af_heart", 1.5)];
    const seconds = plain.length / rate;
    assert.ok(seconds > 2 && seconds < 4.5, `${seconds} s`);
    assert.ok(fast.length < 0.8 * plain.length, `${fast.length} ${plain.length}`);
    assert.ok(Math.max(...loudnessOf(plain)) > 0.05);
  });

  it("refuses text that a voice cannot read", async () => {
    await assert.rejects(speak("😀", "af_heart"), /expected text that the voice "af_heart" can read/);
  });

  it("converts Japanese as the Python package does, except for one phoneme in 50", { skip: lacksMecab }, async () => {
    const noWords = async () => "";
    // Removes word boundaries: they differ, because the package has a word list. Its dictionary also lengthens some vowels
    // (センセー).
    const plain = (phonemes: string) => [...phonemes.replaceAll(/[ “”]/gu, "")];
    let [errors, total] = [0, 0];
    for (const { text, phonemes } of references) {
      errors += wordErrors(plain(phonemes), plain(await japanesePhonemes(text, signal, noWords)));
      total += plain(phonemes).length;
    }
    assert.ok(errors <= total / 50, `${errors} of ${total}`);
  });

  it("reads numbers, the endings of verbs and Latin words in Japanese", { skip: lacksMecab }, async () => {
    const read = (text: string) => japanesePhonemes(text, signal, async (words) => `<${words}>`);
    assert.equal(await read("会いましょう。"), "ai maɕoː.");
    assert.equal(await read("りんごを三百円で買った"), "ɾʲiŋɡo o sambʲakɯ eɴ de kaʔta");
    assert.equal(await read("2,026年"), "ɲiseɲɲiʥɨːɾokɯ neɴ");
    assert.equal(await read("「はい」とTaroは言った。"), "“hai” to <Taro> βa iʔta.");
    await assert.rejects(read("𠮟鱻齉"), /expected Japanese that mecab can read/);
  });

  it("makes the same audio as Python's onnxruntime from the same phonemes", async () => {
    for (const { text, phonemes, samples, loudness } of references.filter((one) => one.samples > 0)) {
      const own = await model.speakPhonemes(phonemes, "jf_alpha", 1, signal);
      assert.equal(own.length, samples, text);
      const found = loudnessOf(own);
      const loudest = Math.max(...loudness);
      for (const [i, level] of loudness.entries()) {
        assert.ok(Math.abs((found[i] ?? 0) - level) < 0.1 * loudest, `${text}, ${i / 20} s`);
      }
    }
  });
});
