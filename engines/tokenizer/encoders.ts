// Owns the three ways of turning plain text into tokens: byte pair encoding, SentencePiece and WordPiece. An encoder gets
// text in which no fixed token is left; engines/tokenizer/vocabulary.ts picks and calls it.
import { Tokenizer } from "@huggingface/tokenizers";
import { ServerError } from "../../runtime/errors.ts";
import type { TokenizerMetadata } from "../gguf/metadata.ts";
import { spellBytes } from "./byte-alphabet.ts";
import { mergeSymbols, type PairRank } from "./merge.ts";
import type { PreTokenizer } from "./pre-tokenizers.ts";
import { splitWords } from "./word-rules.ts";

/** Appends the tokens of `text` to `output`. */
export type Encoder = (text: string, output: number[]) => void;

export const spaceSymbol = "\u2581";

// Words repeat: with this many remembered, most of a text is one look-up a word. Emptied when full.
const rememberedWords = 16_384;
const longestRememberedWord = 32;

export function bytePairEncoder(
  tokenizer: TokenizerMetadata,
  ids: ReadonlyMap<string, number>,
  pre: PreTokenizer,
): Encoder {
  const ranks = new Map<string, number>();
  tokenizer.merges.forEach((merge, rank) => {
    if (!ranks.has(merge)) ranks.set(merge, rank);
  });
  // A merge is written "left right"; no symbol contains a space.
  const rank: PairRank = (text, start, middle, end) =>
    ranks.get(`${text.slice(start, middle)} ${text.slice(middle, end)}`) ?? Number.POSITIVE_INFINITY;
  const bytes = byteTokens(ids);
  const words = new Map<string, readonly number[]>();

  const encodeWord = (word: string): readonly number[] => {
    const symbols = pre.spellsSpaces ? word : spellBytes(word);
    const whole = ids.get(symbols);
    if (whole !== undefined && (pre.wordsFirst || (pre.spellsSpaces && isNewlines(word)))) return [whole];
    const tokens: number[] = [];
    mergeSymbols(symbols, rank, (start, end) => {
      const symbol = symbols.slice(start, end);
      const token = ids.get(symbol);
      if (token !== undefined) tokens.push(token);
      else if (pre.spellsSpaces) pushBytes(symbol, bytes, tokens);
    });
    return tokens;
  };

  return (text, output) => {
    const spelled = pre.spellsSpaces ? text.replaceAll(" ", spaceSymbol) : text;
    splitWords(spelled, pre.rules, (word) => {
      let tokens = words.get(word);
      if (tokens === undefined) {
        tokens = encodeWord(word);
        if (word.length <= longestRememberedWord) {
          if (words.size === rememberedWords) words.clear();
          words.set(word, tokens);
        }
      }
      for (const token of tokens) output.push(token);
    });
  };
}

export function sentencePieceEncoder(tokenizer: TokenizerMetadata, ids: ReadonlyMap<string, number>): Encoder {
  const { scores } = tokenizer;
  if (scores === null) {
    throw new ServerError(
      "model_file_invalid",
      'a "llama" vocabulary needs tokenizer.ggml.scores, but the file has none',
    );
  }
  const rank: PairRank = (text, start, _middle, end) => {
    const token = ids.get(text.slice(start, end));
    return token === undefined ? Number.POSITIVE_INFINITY : -(scores[token] as number);
  };
  const bytes = byteTokens(ids);
  return (text, output) => {
    const symbols = text.replaceAll(" ", spaceSymbol);
    mergeSymbols(symbols, rank, (start, end) => {
      const symbol = symbols.slice(start, end);
      const token = ids.get(symbol);
      if (token === undefined) pushBytes(symbol, bytes, output);
      else output.push(token);
    });
  };
}

export function wordPieceEncoder(tokenizer: TokenizerMetadata): Encoder {
  // Files spell a word's first piece with a leading U+2581 and leave the rest bare; the library wants the rest marked "##".
  const spelling = (text: string) => (text.startsWith(spaceSymbol) ? text.slice(1) : `##${text}`);
  const vocab = Object.fromEntries(tokenizer.tokens.map((text, token) => [spelling(text), token]));
  const unknown = spelling(tokenizer.tokens[tokenizer.unknownId ?? 100] ?? "");
  const library = new Tokenizer(
    {
      normalizer: { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, lowercase: true },
      pre_tokenizer: { type: "BertPreTokenizer" },
      model: {
        type: "WordPiece",
        vocab,
        unk_token: unknown,
        continuing_subword_prefix: "##",
        max_input_chars_per_word: 100,
      },
      post_processor: null,
      decoder: null,
      added_tokens: [],
    },
    {},
  );
  return (text, output) => {
    for (const token of library.encode(text, { add_special_tokens: false }).ids) output.push(token);
  };
}

function isNewlines(word: string): boolean {
  return /^\n+$/.test(word);
}

/** Token ids of the byte tokens "<0x00>" to "<0xFF>", by byte. */
function byteTokens(ids: ReadonlyMap<string, number>): (number | undefined)[] {
  return Array.from({ length: 256 }, (_, byte) => ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`));
}

function pushBytes(symbol: string, bytes: readonly (number | undefined)[], output: number[]): void {
  for (const byte of Buffer.from(symbol, "utf8")) {
    const token = bytes[byte];
    if (token !== undefined) output.push(token);
  }
}
