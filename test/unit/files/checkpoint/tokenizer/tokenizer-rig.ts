// Tokenizer rig: a temporary folder for the files of a tokenizer, and small tokenizers of each kind.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { tokenizerPairs } from "../../../../../engines/files/checkpoint/tokenizer/tokenizer-pairs.ts";
import { byteSpellings } from "../../../../../engines/text/tokenizer/byte-alphabet.ts";

type Content = string | Uint8Array | object;

export interface Converted {
  /** Metadata values by key, without the prefix "tokenizer.ggml.". */
  readonly values: ReadonlyMap<string, unknown>;
  readonly warnings: readonly string[];
}

export class TokenizerRig {
  readonly path = mkdtempSync(join(tmpdir(), "troupe-tokenizer-"));

  /** Writes files; objects are written as JSON. Replaces all earlier files. */
  write(files: Readonly<Record<string, Content>>): void {
    rmSync(this.path, { recursive: true });
    for (const [name, content] of Object.entries(files)) {
      const path = join(this.path, name);
      mkdirSync(dirname(path), { recursive: true });
      const isRaw = typeof content === "string" || content instanceof Uint8Array;
      writeFileSync(path, isRaw ? content : JSON.stringify(content));
    }
  }

  async convert(files: Readonly<Record<string, Content>>, size: number | null = null): Promise<Converted> {
    this.write(files);
    const warnings: string[] = [];
    const pairs = await tokenizerPairs(this.path, size, (difference) => warnings.push(difference));
    const entries = [...pairs].map(([key, { value }]) => [key.replace("tokenizer.ggml.", ""), value] as const);
    return { values: new Map(entries), warnings };
  }

  dispose(): void {
    rmSync(this.path, { recursive: true, force: true });
  }
}

export function added(id: number, content: string, fields: object = {}): object {
  return { id, content, special: true, normalized: false, lstrip: false, rstrip: false, single_word: false, ...fields };
}

const firstTokens = ["<|begin|>", "<|endoftext|>"];
const words = ["he", "ll", "hell", "hello", "\u0120w", "or", "ld"];
const merges = ["h e", "l l", "he ll", "hell o", "\u0120 w", "o r", "l d"];

/** Returns a byte-level BPE tokenizer: two special tokens, all bytes, a few words. */
export function byteLevelJson() {
  const texts = [...firstTokens, ...byteSpellings, ...words];
  return {
    version: "1.0",
    added_tokens: firstTokens.map((text, id) => added(id, text)),
    normalizer: null as object | null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true } as object,
    post_processor: null as object | null,
    decoder: { type: "ByteLevel" },
    model: {
      type: "BPE",
      unk_token: null,
      ignore_merges: false,
      vocab: Object.fromEntries(texts.map((text, id) => [text, id])) as Record<string, number>,
      merges: merges as unknown[],
    },
  };
}

const byteNames = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);

/** Returns a SentencePiece BPE tokenizer with byte tokens, as converted from a Llama 2 model. */
export function piecesJson() {
  const texts = ["<unk>", "<s>", "</s>", ...byteNames, "▁", ..."helowrd", "he", "ll", "hell", "hello", "▁hello"];
  return {
    added_tokens: ["<unk>", "<s>", "</s>"].map((text, id) => added(id, text)),
    normalizer: {
      type: "Sequence",
      normalizers: [
        { type: "Prepend", prepend: "▁" },
        { type: "Replace", pattern: { String: " " }, content: "▁" },
      ],
    },
    pre_tokenizer: null as object | null,
    post_processor: {
      type: "TemplateProcessing",
      single: [{ SpecialToken: { id: "<s>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
      pair: [] as object[],
    },
    model: {
      type: "BPE",
      unk_token: "<unk>",
      byte_fallback: true,
      vocab: Object.fromEntries(texts.map((text, id) => [text, id])) as Record<string, number>,
      merges: [
        ["h", "e"],
        ["l", "l"],
        ["he", "ll"],
        ["hell", "o"],
        ["▁", "hello"],
      ] as unknown[],
    },
  };
}

export function unigramJson() {
  const vocab = ["<pad>", "</s>", "<unk>", "▁", "a", "b", "▁a"].map((text, index) => [text, index < 3 ? 0 : -index]);
  return {
    added_tokens: ["<pad>", "</s>", "<unk>"].map((text, id) => added(id, text)),
    normalizer: null as object | null,
    pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "always", split: true } as object,
    post_processor: {
      type: "TemplateProcessing",
      single: [{ Sequence: { id: "A" } }, { SpecialToken: { id: "</s>" } }],
      pair: [{ Sequence: { id: "A" } }, { SpecialToken: { id: "</s>" } }, { Sequence: { id: "B" } }],
    },
    model: { type: "Unigram", unk_id: 2, byte_fallback: false, vocab: vocab as unknown[] },
  };
}

export function wordPieceJson() {
  const texts = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "word", "."];
  return {
    added_tokens: texts.slice(0, 5).map((text, id) => added(id, text)),
    normalizer: {
      type: "BertNormalizer",
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: null as boolean | null,
      lowercase: true,
    } as object,
    pre_tokenizer: { type: "BertPreTokenizer" } as object,
    post_processor: { type: "BertProcessing", sep: ["[SEP]", 3], cls: ["[CLS]", 2] },
    model: {
      type: "WordPiece",
      unk_token: "[UNK]",
      continuing_subword_prefix: "##",
      vocab: Object.fromEntries(texts.map((text, id) => [text, id])) as Record<string, number>,
    },
  };
}

interface PieceRules {
  /** Model type: 1 = Unigram, 2 = BPE. */
  readonly kind?: number;
  readonly addsPrefix?: boolean;
  readonly removesSpaces?: boolean;
  readonly charactersMap?: Uint8Array;
}

/** Encodes a SentencePiece file. Each piece has a text, a score and a type. */
export function pieceFile(
  pieces: readonly (readonly [text: string, score: number, type: number])[],
  { kind = 2, addsPrefix = true, removesSpaces = false, charactersMap = new Uint8Array(0) }: PieceRules = {},
): Buffer {
  const encoded = pieces.map(([text, score, type]) => {
    const float = Buffer.alloc(4);
    float.writeFloatLE(score);
    const content = [bytesField(1, Buffer.from(text)), Buffer.from([(2 << 3) | 5]), float, integerField(3, type)];
    return bytesField(1, Buffer.concat(content));
  });
  const trainer = bytesField(2, integerField(3, kind));
  const rules = [
    bytesField(2, charactersMap),
    integerField(3, Number(addsPrefix)),
    integerField(4, Number(removesSpaces)),
  ];
  return Buffer.concat([...encoded, trainer, bytesField(3, Buffer.concat(rules))]);
}

function bytesField(field: number, content: Uint8Array): Buffer {
  return Buffer.concat([varint((field << 3) | 2), varint(content.length), content]);
}

function integerField(field: number, value: number): Buffer {
  return Buffer.concat([varint(field << 3), varint(value)]);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    bytes.push(rest < 128 ? rest : (rest % 128) | 0x80);
    if (rest < 128) return Buffer.from(bytes);
  }
}
