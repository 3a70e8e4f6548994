// Tiny vocabularies for the tests of this folder: that of the tiny model, and handmade ones of the other two kinds of
// tokenizer.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type ModelMetadata,
  readModelMetadata,
  type TokenizerMetadata,
} from "../../../../engines/files/gguf/metadata.ts";
import { type TinyModelOptions, writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";

/** Runs `use` with a folder that is deleted afterwards. */
export async function inTemporaryFolder<T>(use: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), "text-test-"));
  try {
    return await use(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

export function tinyMetadata(options: Partial<TinyModelOptions> = {}): Promise<ModelMetadata> {
  return inTemporaryFolder(async (folder) => {
    const path = join(folder, "tiny.gguf");
    await writeTinyModel(path, { seed: 1, layers: 1, ...options });
    return readModelMetadata(path);
  });
}

const unset = {
  pre: null,
  types: null,
  scores: null,
  merges: [],
  bosId: null,
  eosId: null,
  eotId: null,
  eomId: null,
  unknownId: null,
  addBos: null,
  addEos: null,
  addSpacePrefix: null,
  stripsAfterControl: false,
};

/** Returns a SentencePiece vocabulary: control tokens, all bytes, then these pieces with their scores. */
export function sentencePieceMetadata(pieces: readonly (readonly [text: string, score: number])[]): TokenizerMetadata {
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  return {
    ...unset,
    model: "llama",
    tokens: ["<unk>", "<s>", "</s>", ...bytes, ...pieces.map(([text]) => text)],
    types: [2, 3, 3, ...bytes.map(() => 6), ...pieces.map(() => 1)],
    scores: [0, 0, 0, ...bytes.map(() => 0), ...pieces.map(([, score]) => score)],
    bosId: 1,
    eosId: 2,
    unknownId: 0,
  };
}

export function wordPieceMetadata(words: readonly string[]): TokenizerMetadata {
  const tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ...words];
  return { ...unset, model: "bert", tokens, types: tokens.map((_, i) => (i < 4 ? 3 : 1)), unknownId: 1, bosId: 2 };
}

/** Returns a "t5" vocabulary: control tokens, then these pieces with their scores. */
export function unigramMetadata(pieces: readonly (readonly [text: string, score: number])[]): TokenizerMetadata {
  return {
    ...unset,
    model: "t5",
    tokens: ["<pad>", "</s>", "<unk>", ...pieces.map(([text]) => text)],
    types: [3, 3, 2, ...pieces.map(() => 1)],
    scores: [0, 0, 0, ...pieces.map(([, score]) => score)],
    eosId: 1,
    unknownId: 2,
  };
}
