// Exact models: convert a word to tokens as the models of Hugging Face's tokenizers package do (BPE, Unigram,
// WordPiece). Pairs are merged as in encoding/encoders.ts; only unknown characters are handled differently.

import type { TokenizerMetadata } from "../../../files/gguf/metadata.ts";
import type { ExactRules } from "../../../files/tokenizer-rules.ts";
import { spellBytes } from "../byte-alphabet.ts";
import { spacedWordSplitter, spaceSymbol } from "../encoding/encoders.ts";
import { mergeSymbols, type PairRank } from "../encoding/merge.ts";
import { RememberedWords } from "../encoding/remembered-words.ts";
import { unigramWords } from "../encoding/unigram.ts";
import type { TokenKind } from "../token-kinds.ts";

/** Appends the tokens of a word. */
export type WordEncoder = (word: string, output: number[]) => void;

interface ModelParts {
  readonly tokenizer: TokenizerMetadata;
  readonly kinds: readonly TokenKind[];
  /** Ids of the text tokens, by their text in the model file. */
  readonly ids: ReadonlyMap<string, number>;
  readonly rules: ExactRules;
}

export function wordEncoder(parts: ModelParts): WordEncoder {
  switch (parts.tokenizer.model) {
    case "bert":
      return wordPieces(parts);
    case "t5":
      return unigram(parts);
    default:
      return pairs(parts);
  }
}

function pairs({ tokenizer, ids, rules }: ModelParts): WordEncoder {
  const { merges, exactMerges = null, scores, model: kind, pre } = tokenizer;
  const { takesWords } = rules.model;
  const isByteLevel = kind === "gpt2" && rules.words.some(({ type }) => type === "Patterns" || type === "PrefixSpace");
  const byScore = kind === "llama" && exactMerges === null && scores !== null;
  const rank = byScore ? scoreRank(ids, scores) : mergeRank(exactMerges ?? merges);
  const unknown = unknownPusher(ids, rules.model);
  const remembered = new RememberedWords((word) => {
    const symbols = isByteLevel ? spellBytes(word) : word;
    const whole = takesWords ? ids.get(symbols) : undefined;
    if (whole !== undefined) return [whole];
    const tokens: number[] = [];
    let isUnknown = false;
    mergeSymbols(symbols, rank, (start, end) => {
      const symbol = symbols.slice(start, end);
      const token = ids.get(symbol);
      if (token !== undefined) tokens.push(token);
      isUnknown = token === undefined && unknown(symbol, tokens, isUnknown);
    });
    return tokens;
  });
  if (isByteLevel || pre === null) return (word, output) => remembered.append(word, output);
  // These cuts do not change the tokens, and they allow caching the tokens of each word of a long text.
  const joined = kind === "llama" ? ids.keys() : merges.map((merge) => merge.replace(" ", ""));
  const split = spacedWordSplitter(joined);
  const { fusesUnknown, unknown: id } = rules.model;
  return (text, output) => {
    split(text, (word) => {
      const first = output.length;
      remembered.append(word, output);
      // A run of unknown characters is one token, even if a cut divides the run.
      if (fusesUnknown && first > 0 && output[first] === id && output[first - 1] === id) output.splice(first, 1);
    });
  };
}

function scoreRank(ids: ReadonlyMap<string, number>, scores: readonly number[]): PairRank {
  return (text, start, _middle, end) => {
    const token = ids.get(text.slice(start, end));
    return token === undefined ? Number.POSITIVE_INFINITY : -(scores[token] as number);
  };
}

function mergeRank(merges: readonly string[]): PairRank {
  const ranks = new Map<string, number>();
  merges.forEach((merge, rank) => {
    if (!ranks.has(merge)) ranks.set(merge, rank);
  });
  return (text, start, middle, end) =>
    ranks.get(`${text.slice(start, middle)} ${text.slice(middle, end)}`) ?? Number.POSITIVE_INFINITY;
}

/**
 * Returns a function that appends the tokens of a character that is not in the vocabulary: its byte tokens, or the
 * unknown token. The function returns true in the second case.
 */
function unknownPusher(ids: ReadonlyMap<string, number>, { unknown, fusesUnknown, hasBytes }: ExactRules["model"]) {
  const bytes = Array.from({ length: 256 }, (_, byte) => {
    return ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  });
  return (symbol: string, output: number[], followsUnknown: boolean): boolean => {
    const own = hasBytes ? [...Buffer.from(symbol, "utf8")].map((byte) => bytes[byte]) : [undefined];
    if (own.every((token) => token !== undefined)) {
      output.push(...own);
      return false;
    }
    if (unknown !== null && !(followsUnknown && fusesUnknown)) output.push(unknown);
    return unknown !== null;
  };
}

function unigram({ tokenizer, kinds, rules }: ModelParts): WordEncoder {
  const { tokens, scores } = tokenizer;
  const encode = unigramWords({ tokens, kinds, scores, unknown: rules.model.unknown ?? 0 });
  const remembered = new RememberedWords(encode);
  return (word, output) => remembered.append(word, output);
}

function wordPieces({ ids, rules }: ModelParts): WordEncoder {
  const inside = new Set(rules.inside);
  const starts = new Map<string, number>();
  const middles = new Map<string, number>();
  for (const [text, id] of ids) {
    if (text.startsWith(spaceSymbol) && !inside.has(id)) starts.set(text.slice(1), id);
    else middles.set(text, id);
  }
  const { longestWord, unknown } = rules.model;
  const remembered = new RememberedWords((word) => {
    const characters = [...word];
    const pieces = characters.length > longestWord ? null : longestPieces(characters, starts, middles);
    if (pieces !== null) return pieces;
    return unknown === null ? [] : [unknown];
  });
  return (word, output) => remembered.append(word, output);
}

/** Cuts a word into its longest pieces from left to right. Returns null if a part of the word has no piece. */
function longestPieces(
  characters: readonly string[],
  starts: ReadonlyMap<string, number>,
  middles: ReadonlyMap<string, number>,
): number[] | null {
  const pieces: number[] = [];
  for (let start = 0; start < characters.length; ) {
    const known = start === 0 ? starts : middles;
    let end = characters.length;
    let piece: number | undefined;
    for (; end > start; end--) {
      piece = known.get(characters.slice(start, end).join(""));
      if (piece !== undefined) break;
    }
    if (piece === undefined) return null;
    pieces.push(piece);
    start = end;
  }
  return pieces;
}
