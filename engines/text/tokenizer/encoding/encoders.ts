// BPE and SentencePiece encoders: turn plain text into tokens by merging pairs. Fixed tokens were already removed from
// the text. encoding-plan.ts creates these encoders. The WordPiece and Unigram encoders are in word-piece.ts and
// unigram.ts.
import { ServerError } from "../../../../runtime/errors.ts";
import type { TokenizerMetadata } from "../../../files/gguf/metadata.ts";
import { spellBytes } from "../byte-alphabet.ts";
import { mergeSymbols, type PairRank } from "./merge.ts";
import type { PreTokenizer } from "./pre-tokenizers.ts";
import { RememberedWords } from "./remembered-words.ts";
import { splitWords } from "./word-rules.ts";

/**
 * Appends the tokens of `text` to `output`. `isFirst`: whether the text is at the beginning of a prompt; only
 * tokenizers with the rules of tokenizer.json use it.
 */
export type Encoder = (text: string, output: number[], isFirst?: boolean) => void;

export const spaceSymbol = "\u2581";

export function bytePairEncoder(
  merges: readonly string[],
  ids: ReadonlyMap<string, number>,
  pre: PreTokenizer,
): Encoder {
  const ranks = new Map<string, number>();
  merges.forEach((merge, rank) => {
    if (!ranks.has(merge)) ranks.set(merge, rank);
  });
  // A merge is written "left right". This is unambiguous, because no symbol contains a space.
  const rank: PairRank = (text, start, middle, end) =>
    ranks.get(`${text.slice(start, middle)} ${text.slice(middle, end)}`) ?? Number.POSITIVE_INFINITY;
  const pushUnknown = pre.symbols === "bytes" ? asciiPusher(ids) : bytePusher(ids);

  const encodeWord = (word: string): readonly number[] => {
    const symbols = pre.symbols === "bytes" ? spellBytes(word) : word;
    const whole = ids.get(symbols);
    if (whole !== undefined && (pre.wordsFirst || (pre.newlinesFirst && isNewlines(word)))) return [whole];
    const tokens: number[] = [];
    mergeSymbols(symbols, rank, (start, end) => {
      const symbol = symbols.slice(start, end);
      const token = ids.get(symbol);
      if (token === undefined) pushUnknown(symbol, tokens);
      else tokens.push(token);
    });
    return tokens;
  };

  const words = new RememberedWords(encodeWord);
  if (pre.symbols !== "spaces") {
    return (text, output) => splitWords(text, pre.rules, (word) => words.append(word, output));
  }
  const splitSpaced = spacedWordSplitter(merges.map((merge) => merge.replace(" ", "")));
  return (text, output) => {
    splitWords(text.replaceAll(" ", spaceSymbol), pre.rules, (line) => {
      splitSpaced(line, (word) => words.append(word, output));
    });
  };
}

export function sentencePieceEncoder(
  { scores, unknownId }: TokenizerMetadata,
  ids: ReadonlyMap<string, number>,
  addsSpacePrefix: boolean,
): Encoder {
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
  const pushUnknown = bytePusher(ids, unknownId ?? 0);
  const words = new RememberedWords((word) => {
    const tokens: number[] = [];
    mergeSymbols(word, rank, (start, end) => {
      const symbol = word.slice(start, end);
      const token = ids.get(symbol);
      if (token === undefined) pushUnknown(symbol, tokens);
      else tokens.push(token);
    });
    return tokens;
  });
  const splitSpaced = spacedWordSplitter(ids.keys());
  return (text, output) => {
    const spelled = (addsSpacePrefix ? ` ${text}` : text).replaceAll(" ", spaceSymbol);
    splitSpaced(spelled, (word) => words.append(word, output));
  };
}

/**
 * Returns a function that cuts text before a space, unless a symbol in `symbols` spans the cut. The cuts do not change
 * the tokens, and allow caching the tokens of words.
 */
export function spacedWordSplitter(symbols: Iterable<string>): (text: string, emit: (word: string) => void) => void {
  const joinedToSpace = new Set<string>();
  for (const symbol of symbols) {
    for (let at = symbol.indexOf(spaceSymbol, 1); at > 0; at = symbol.indexOf(spaceSymbol, at + 1)) {
      joinedToSpace.add(symbol.charAt(at - 1));
    }
  }
  return (text, emit) => {
    let start = 0;
    for (let at = text.indexOf(spaceSymbol, 1); at > 0; at = text.indexOf(spaceSymbol, at + 1)) {
      if (joinedToSpace.has(text.charAt(at - 1))) continue;
      emit(text.slice(start, at));
      start = at;
    }
    if (start < text.length) emit(text.slice(start));
  };
}

function isNewlines(word: string): boolean {
  return /^\n+$/.test(word);
}

/** Appends the tokens of a symbol that is not a token itself. */
type Pusher = (symbol: string, output: number[]) => void;

/**
 * Pushes the byte tokens "<0x00>" to "<0xFF>". A byte without a token becomes the token `missing`; if
 * `missing` is null, the byte is dropped.
 */
function bytePusher(ids: ReadonlyMap<string, number>, missing: number | null = null): Pusher {
  const tokens = Array.from({ length: 256 }, (_, byte) => {
    return ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`) ?? missing;
  });
  return (symbol, output) => {
    for (const byte of Buffer.from(symbol, "utf8")) {
      const token = tokens[byte];
      if (typeof token === "number") output.push(token);
    }
  };
}

/**
 * Pushes the tokens of single characters. Characters beyond ASCII get no tokens, as in llama.cpp, which looks up each
 * byte separately.
 */
function asciiPusher(ids: ReadonlyMap<string, number>): Pusher {
  return (symbol, output) => {
    for (const char of symbol) {
      const token = char < "\x80" ? ids.get(char) : undefined;
      if (token !== undefined) output.push(token);
    }
  };
}
