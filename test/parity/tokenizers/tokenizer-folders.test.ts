// Tokenizers of Hugging Face folders: they return the same tokens as the official Python package for every text. If only the
// metadata keys that llama.cpp knows are used, they return the same tokens as llama.cpp. TOKENIZER_FOLDERS names more folders,
// separated by ":".
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { after, before, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { knownPreTokenizers } from "../../../engines/files/checkpoint/tokenizer/kinds/pre-tokenizers.ts";
import { tokenizerPairs } from "../../../engines/files/checkpoint/tokenizer/tokenizer-pairs.ts";
import { readModelMetadata } from "../../../engines/files/gguf/metadata.ts";
import { Detokenizer } from "../../../engines/text/tokenizer/detokenizer.ts";
import { createVocabulary, type Vocabulary, vocabularyProbes } from "../../../engines/text/tokenizer/vocabulary.ts";
import { compileCharactersMap } from "../../fixtures/text/characters-map.ts";
import { NativeVocabulary } from "../../fixtures/text/native-vocabulary.ts";
import { texts as namedTexts } from "../../fixtures/text/texts.ts";
import { replacements } from "../../fixtures/text/vocabularies.ts";
import { writePairs } from "../../fixtures/tokenizers/pairs-file.ts";
import { pythonEnvironment } from "../../server/python/environment.ts";

const givenFolders = process.env.TOKENIZER_FOLDERS?.split(":") ?? [];
const script = fileURLToPath(new URL("../../../../test/fixtures/tokenizers/train.py", import.meta.url));

const probes = vocabularyProbes.map((probe, index) => [`probe ${index}`, probe] as const);
/** First code points of the Unicode blocks for random texts. Half of each text is ASCII. */
const blocks = [
  ...[
    0xa0, 0x300, 0x370, 0x600, 0x900, 0xe00, 0x2000, 0x2100, 0x3000, 0x4e00, 0xa000, 0xac00, 0xf900, 0x10000, 0x1d400,
  ],
  ...[0x1cc00, 0x1f300, 0x20000],
];
const learnedTexts = [...Object.entries(namedTexts), ...probes];
const texts = new Map([...learnedTexts, ...randomTexts(60)]);

function randomTexts(count: number): (readonly [name: string, text: string])[] {
  let state = 7;
  const below = (limit: number) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % limit;
  };
  const part = () => {
    if (below(6) === 0) return [" ", "  ", "\n", "\t", " 12345", " don't"][below(6)] as string;
    const first = below(2) === 0 ? 0x20 : (blocks[below(blocks.length)] as number);
    return String.fromCodePoint(first + below(first === 0x20 ? 0x5f : 0x100));
  };
  return Array.from({ length: count }, (_, i) => [`random ${i}`, Array.from({ length: 30 }, part).join("")]);
}

/** All white space characters that SentencePiece's maps replace. */
const spaces = [..."\t\n\v\f\r\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"].concat(
  Array.from({ length: 11 }, (_, index) => String.fromCharCode(0x2000 + index)),
);

interface Encoding {
  readonly ids: readonly number[];
  /** Ids with the special tokens that are added around a text. */
  readonly whole: readonly number[];
  readonly decoded: string;
}

interface Tokenizer {
  readonly ours: Vocabulary;
  /** Vocabulary that uses only the metadata keys that llama.cpp knows. */
  readonly inexact: Vocabulary;
  readonly native: NativeVocabulary;
  readonly expected: ReadonlyMap<string, Encoding>;
  readonly model: unknown;
  readonly warnings: readonly string[];
}

describe("the tokenizer of a folder", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-tokenizers-"));
  const tokenizers = new Map<string, Tokenizer>();

  before(async () => {
    const python = await pythonEnvironment();
    const charsmap = compileCharactersMap({
      ...Object.fromEntries(spaces.map((space) => [space, " "])),
      ...replacements,
    });
    const request = {
      folder,
      texts: [...texts.values()],
      learned: learnedTexts.length,
      cuts: Object.fromEntries(knownPreTokenizers.map(({ name, cuts }) => [name, cuts])),
      takes_words: knownPreTokenizers.filter(({ takesWords }) => takesWords).map(({ name }) => name),
      given: givenFolders,
      charsmap: Buffer.from(charsmap).toString("base64"),
    };
    const { status, stderr } = spawnSync(python, [script], { input: JSON.stringify(request), encoding: "utf8" });
    assert.equal(status, 0, stderr);
    const encodings = JSON.parse(readFileSync(join(folder, "encodings.json"), "utf8")) as Record<string, Encoding[]>;
    for (const [name, list] of Object.entries(encodings)) tokenizers.set(name, await convert(name, list));
  });
  after(() => {
    for (const { native } of tokenizers.values()) native.dispose();
    rmSync(folder, { recursive: true, force: true });
  });

  async function convert(name: string, encodings: readonly Encoding[]): Promise<Tokenizer> {
    const warnings: string[] = [];
    const path = join(folder, `${basename(name)}.gguf`);
    const pairs = await tokenizerPairs(resolve(folder, name), null, (difference) => warnings.push(difference));
    await writePairs(path, pairs);
    const { tokenizer } = await readModelMetadata(path);
    return {
      ours: createVocabulary(tokenizer),
      inexact: createVocabulary({ ...tokenizer, rules: null }),
      native: await NativeVocabulary.load(path),
      expected: new Map([...texts.keys()].map((key, index) => [key, encodings[index]!])),
      model: pairs.get("tokenizer.ggml.model")?.value,
      warnings,
    };
  }

  /** Returns "tokenizer: text" for every text that `check` rejects. */
  function failures(
    tested: readonly (readonly [string, Tokenizer])[],
    check: (tokenizer: Tokenizer, text: string, encoding: Encoding) => boolean,
  ): string[] {
    return tested.flatMap(([name, tokenizer]) => {
      const wrong = [...texts].filter(([key, text]) => !check(tokenizer, text, tokenizer.expected.get(key)!));
      return wrong.map(([key]) => `${name}: ${key}`);
    });
  }

  const encode = (ours: Vocabulary, text: string) => ours.encodePrompt({ text, marker: "\ufdd1" }, false);
  const areEqual = (one: Iterable<number>, other: Iterable<number>) => [...one].join() === [...other].join();
  const trained = () => [...tokenizers].filter(([name]) => !givenFolders.includes(name));
  const hasControls = (ours: Vocabulary, ids: readonly number[]) => ids.some((id) => ours.isControl(id));

  it("gives the same tokens as the Python package", () => {
    assert.ok(tokenizers.size > 30);
    const compared = ({ ours }: Tokenizer, text: string, { ids }: Encoding) => areEqual(encode(ours, text), ids);
    assert.deepEqual(failures([...tokenizers], compared), []);
  });

  it("has exact rules, so that llama.cpp's differences need no warning", () => {
    for (const [name, { ours, warnings }] of trained()) assert.deepEqual([ours.isExact, warnings], [true, []], name);
  });

  it("adds Python's special tokens", () => {
    const compared = ({ ours }: Tokenizer, text: string, { ids, whole }: Encoding) =>
      hasControls(ours, ids) || areEqual(ours.encodeWhole(text), whole);
    assert.deepEqual(failures(trained(), compared), []);
  });

  it("gives the same decoded texts as the Python package", () => {
    const decoded = (ours: Vocabulary, ids: readonly number[]) => {
      const detokenizer = new Detokenizer(ours, null, new Set(ours.controlTokens));
      return ids.map((id) => detokenizer.push(id)).join("") + detokenizer.flush();
    };
    const compared = ({ ours, model }: Tokenizer, _: string, encoding: Encoding) => {
      const isLossy = model === "bert" || model === "t5" || (model === "llama" && hasControls(ours, encoding.ids));
      return isLossy || decoded(ours, encoding.ids) === encoding.decoded;
    };
    assert.deepEqual(failures(trained(), compared), []);
  });

  it("equals llama.cpp's tokenizer of the written file on every text, without the exact rules", () => {
    for (const [name, { inexact, native }] of tokenizers) {
      for (const [key, text] of texts) {
        const expected = native.tokenize(text, { addSpecial: false, parseSpecial: true });
        assert.deepEqual(encode(inexact, text), expected, `${name}: ${key}`);
      }
    }
  });
});
