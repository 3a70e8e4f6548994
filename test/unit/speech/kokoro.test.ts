// Kokoro without its weights: folder layouts, voice files, conversion of phonemes, and Japanese.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { isSpeechModel } from "../../../cli/assembly/models/speech.ts";
import { identifySpeech } from "../../../engines/speech/open-speech.ts";
import { japanesePhonemes } from "../../../engines/speech/voices/kokoro/japanese.ts";
import { phonemesOfKana } from "../../../engines/speech/voices/kokoro/kana.ts";
import { partsOf } from "../../../engines/speech/voices/kokoro/kokoro.ts";
import { kanjiNumbers, readingOfNumerals } from "../../../engines/speech/voices/kokoro/numerals.ts";
import { kokoroSigns } from "../../../engines/speech/voices/kokoro/phonemes.ts";
import { openStyles, styleLength } from "../../../engines/speech/voices/kokoro/styles.ts";
import { zip } from "../../fixtures/skills/zip-builder.ts";

const lacksMecab =
  process.env.CI === undefined && spawnSync("mecab", ["--version"]).status !== 0 && "mecab is not installed";

const folder = mkdtempSync(join(tmpdir(), "troupe-kokoro-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/** Creates a folder with empty files. */
function folderWith(name: string, files: readonly string[]): string {
  for (const file of files) {
    const path = join(folder, name, file);
    mkdirSync(join(path, ".."), { recursive: true });
    writeFileSync(path, "");
  }
  return join(folder, name);
}

describe("a folder with Kokoro", () => {
  it("is recognised in both layouts, without its kind being set", () => {
    const layouts = [
      ["onnx/model_quantized.onnx", "voices/af_heart.bin", "tokenizer.json"],
      ["kokoro-v1.0.int8.onnx", "voices-v1.0.bin", "config.json"],
      ["kokoro-v1.0.onnx", "voices_ja.npz", "vocab.json"],
    ];
    for (const [i, files] of layouts.entries()) {
      const path = folderWith(`layout-${i}`, files);
      assert.deepEqual(identifySpeech(path), { engine: "kokoro", task: "speak" });
      assert.ok(isSpeechModel({ kind: "auto", modelId: path }));
    }
    const incomplete = folderWith("incomplete", ["kokoro-v1.0.onnx", "vocab.json"]);
    assert.ok(!isSpeechModel({ kind: "auto", modelId: incomplete }));
    assert.throws(() => identifySpeech(incomplete), /voices\*\.npz/);
  });

  it("with Dia is rejected with a specific error, whether its kind is set or not", () => {
    const path = folderWith("dia", ["model.safetensors"]);
    writeFileSync(join(path, "config.json"), '{"architectures":["DiaForConditionalGeneration"],"model_type":"dia"}');
    assert.ok(isSpeechModel({ kind: "auto", modelId: path }));
    assert.throws(() => identifySpeech(path), /a dialogue model \(dia\), which is not supported/);
  });
});

describe("the voices of Kokoro", () => {
  const vectors = Float32Array.from({ length: 2 * styleLength }, (_, i) => i);
  const bytes = Buffer.from(vectors.buffer);
  const array = (head: string): Buffer => {
    const text = Buffer.from(`${head}\n`);
    const length = Buffer.alloc(2);
    length.writeUInt16LE(text.length);
    return Buffer.concat([Buffer.from("\x93NUMPY\x01\x00", "latin1"), length, text, bytes]);
  };
  const archive = (files: Readonly<Record<string, Uint8Array>>) =>
    zip(Object.entries(files).map(([name, content]) => ({ name, content, method: 0 })));

  it("are read from a folder and from an archive of numpy", async () => {
    mkdirSync(join(folder, "voices"));
    writeFileSync(join(folder, "voices", "af_one.bin"), bytes);
    const inFolder = await openStyles(join(folder, "voices"), true);
    const head = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1, 256), }";
    writeFileSync(join(folder, "voices.npz"), archive({ "jf_two.npy": array(head), "af_one.npy": array(head) }));
    const inArchive = await openStyles(join(folder, "voices.npz"), false);
    assert.deepEqual([inFolder.ids, inArchive.ids], [["af_one"], ["af_one", "jf_two"]]);
    for (const styles of [inFolder, inArchive]) {
      assert.deepEqual(await styles.read("af_one"), vectors);
      styles.close();
    }
  });

  it("are refused with other numbers, and when they are damaged", async () => {
    const head = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 1, 128), }";
    const files = { "af_wide.npy": array(head), "af_cut.npy": bytes.subarray(0, 100) };
    writeFileSync(join(folder, "other.npz"), archive(files));
    const styles = await openStyles(join(folder, "other.npz"), false);
    await assert.rejects(styles.read("af_wide"), /expects 32-bit floats in the order of rows; got .*<f8/);
    await assert.rejects(styles.read("af_cut"), /not an array of numpy/);
    styles.close();
    writeFileSync(join(folder, "none.npz"), "no archive");
    await assert.rejects(openStyles(join(folder, "none.npz"), false), /is not an archive of numpy/);
  });
});

describe("the phonemes of Kokoro", () => {
  it("equal those of the model's author for American and British English", () => {
    // Left: phonemes as espeak-ng writes them. Right: the entries of misaki's dictionaries.
    const american = {
      "bˈɛ^ɹ": "bˈɛɹ",
      "ɡˌo^ʊ": "ɡˌO",
      kˈɔːt: "kˈɔt",
      "ɐbˌa^ʊt": "əbˌWt",
      bˈɛɾɚ: "bˈɛTəɹ",
      "t^ʃˈɜːt^ʃ": "ʧˈɜɹʧ",
      "lˈɪɾə^l": "lˈɪTᵊl",
      "hˈɪ^ɹɹɪŋ": "hˈɪɹɪŋ",
      "fˈa^ɪ^ɚ": "fˈIəɹ",
    };
    for (const [from, to] of Object.entries(american)) assert.equal(kokoroSigns(from, "en-us"), to);
    const british = { "bˈe^ə": "bˈɛː", "hˈi^ə": "hˈɪə", "ɡˌə^ʊ": "ɡˌQ", bˈɜːd: "bˈɜːd", "lˈɪtə^l": "lˈɪtᵊl" };
    for (const [from, to] of Object.entries(british)) assert.equal(kokoroSigns(from, "en-gb"), to);
    assert.equal(kokoroSigns("t^ʃˈa^ʊ", "it"), "ʧˈW");
  });

  it("are split at punctuation and spaces when there are too many, and none is lost", () => {
    const words = Array.from({ length: 40 }, (_, i) => `wˈʌn${i % 7 === 6 ? "," : ""}`).join(" ");
    const parts = partsOf(words, 50);
    assert.ok(parts.every((part) => [...part].length <= 50));
    assert.ok(parts.length > 3 && parts.slice(0, 2).every((part) => part.endsWith(",")));
    assert.equal(parts.join(" "), words);
    assert.deepEqual(partsOf("a".repeat(120), 50), ["a".repeat(50), "a".repeat(50), "a".repeat(20)]);
  });
});

describe("Japanese for Kokoro", () => {
  it("has the same phonemes as misaki for kana", () => {
    const known = {
      コーヒー: "koːçiː",
      がっこう: "ɡaʔkoɯ",
      しんぶん: "ɕimbɯɴ",
      ニンジャ: "ɲiɲʥa",
      キュー: "kʲɨː",
      ファイル: "ɸaiɾɯ",
      パーティー: "paːtʲiː",
      ウィキ: "βikʲi",
      クァルテット: "kᵝaɾɯteʔto",
      ヴァイオリン: "vaioɾʲiɴ",
      ツァー: "ʦaː",
      チェック: "ʨeʔkɯ",
      さんぽ: "sampo",
      かんじ: "kaɲʥi",
      ぎんこう: "ɡʲiŋkoɯ",
    };
    for (const [kana, phonemes] of Object.entries(known)) assert.equal(phonemesOfKana(kana), phonemes, kana);
  });

  it("keeps the punctuation of a sentence, also several marks in a row", { skip: lacksMecab }, async () => {
    const read = (text: string) => japanesePhonemes(text, new AbortController().signal, async (words) => `<${words}>`);
    assert.equal(await read("すごい！？"), "sɨɡoi!?");
    assert.equal(await read("はい!!"), "hai!!");
    assert.equal(await read("はい…はい……。"), "hai… hai…….");
    assert.equal(await read("「はい！」(はい)"), "“hai!” (hai)");
  });

  it("reads numbers", () => {
    const written = {
      "0": "〇",
      "10": "十",
      "300": "三百",
      "2,026": "二千二十六",
      "3.14": "三点一四",
      "10000": "一万",
      "11110000": "一千百十一万",
      "100000001": "一億一",
      "007": "〇〇七",
      "12345678901234567": "一二三四五六七八九〇一二三四五六七",
    };
    for (const [digits, kanji] of Object.entries(written)) assert.equal(kanjiNumbers(digits), kanji, digits);
    const read = {
      二千二十六: "ニセンニジューロク",
      三千六百: "サンゼンロッピャク",
      八兆: "ハッチョー",
      〇点五: "レーテンゴ",
    };
    for (const [kanji, kana] of Object.entries(read)) assert.equal(readingOfNumerals(kanji), kana, kanji);
  });
});
