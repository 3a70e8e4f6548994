// Exact rules of a tokenizer.json: its steps as data for troupe's own tokenizer, for the cases in which the keys of a GGUF file
// can only say them approximately. Written into the file under a key of troupe's; llama.cpp ignores it.

import type { JsonField } from "../../json-field.ts";
import {
  type ExactRules,
  exactMergesKey,
  exactRulesKey,
  type NormalizerRule,
  type WordRule,
} from "../../tokenizer-rules.ts";
import { isByteLevel } from "./kinds/byte-pairs.ts";
import type { VocabularyPairs } from "./kinds/vocabulary.ts";
import { type TokenizerJson, typeOf } from "./source/tokenizer-json.ts";
import { keyPrefix, type Pairs } from "./token-pairs.ts";
import { spaceSymbol, tokenTypes } from "./token-table.ts";

/** Longest word of WordPiece in characters, if a file names none. */
const usualWord = 100;

/** A step that has no exact rule. */
class NoRule extends Error {}

/**
 * Adds the exact rules of a tokenizer to its pairs. Returns false, and adds nothing, if a step is not known: then the
 * tokenizer works by llama.cpp's rules.
 */
export function addExactRules(vocabulary: VocabularyPairs, json: TokenizerJson): boolean {
  try {
    const rules = rulesOf(vocabulary, json);
    vocabulary.pairs.set(exactRulesKey, { type: "string", value: JSON.stringify(rules) });
    if (vocabulary.merges) {
      const merges = vocabulary.merges.map((merge) => merge.join(" "));
      vocabulary.pairs.set(exactMergesKey, { type: "array", of: "string", value: merges });
    }
    return true;
  } catch (error) {
    if (error instanceof NoRule) return false;
    throw error;
  }
}

function rulesOf({ model, pairs, size, ids, unknown }: VocabularyPairs, json: TokenizerJson): ExactRules {
  const types = pairs.get(`${keyPrefix}token_type`)?.value as readonly number[];
  const id = unknown === null ? null : (ids.get(unknown) ?? null);
  return {
    normalizers: json.normalizers.map(normalizerOf),
    words: isByteLevel(json) ? byteLevelWords(json, pairs) : json.preTokenizers.map(wordRule),
    added: json.added
      .filter((token) => token.id < size && (token.isNormalized || token.rules.length > 0))
      .map((token) => ({ id: token.id, normalized: token.isNormalized, rules: token.rules })),
    model: modelOf(json.model, id),
    inside: model === "bert" ? insidePieces(json, types) : [],
  };
}

function modelOf(model: JsonField, unknown: number | null): ExactRules["model"] {
  return {
    unknown,
    fusesUnknown: model.get("fuse_unk").flag() ?? false,
    hasBytes: model.get("byte_fallback").flag() ?? false,
    takesWords: model.get("ignore_merges").flag() ?? false,
    longestWord: longestWordOf(model),
  };
}

/** Longest words are cut in quadratic time, so other lengths than the usual ones have no exact rule. */
function longestWordOf(model: JsonField): number {
  const longest = model.get("max_input_chars_per_word").count(Number.MAX_SAFE_INTEGER) ?? usualWord;
  if (longest > 10 * usualWord) throw new NoRule("max_input_chars_per_word");
  return longest;
}

function normalizerOf(step: JsonField): NormalizerRule {
  const type = typeOf(step);
  switch (type) {
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD":
    case "Lowercase":
    case "StripAccents":
      return { type };
    case "Precompiled":
      return { type };
    case "Prepend":
      return { type, text: required(step.get("prepend").text()) };
    case "Strip":
      return { type, left: step.get("strip_left").flag() ?? true, right: step.get("strip_right").flag() ?? true };
    case "Replace":
      return replacement(step);
    case "BertNormalizer": {
      const lowersCase = step.get("lowercase").flag() ?? true;
      return {
        type,
        cleans: step.get("clean_text").flag() ?? true,
        separates: step.get("handle_chinese_chars").flag() ?? true,
        strips: step.get("strip_accents").flag() ?? lowersCase,
        lowersCase,
      };
    }
    default:
      throw new NoRule(type);
  }
}

function replacement(step: JsonField): NormalizerRule {
  const content = required(step.get("content").text());
  const text = step.get("pattern").get("String").text();
  if (text !== null) return { type: "Replace", text, content };
  const least = new Map([
    [" +", 1],
    [" {2,}", 2],
    ["  +", 2],
  ]).get(step.get("pattern").get("Regex").text() ?? "");
  if (least === undefined) throw new NoRule("Replace");
  return { type: "JoinSpaces", least, content };
}

function wordRule(step: JsonField): WordRule {
  const type = typeOf(step);
  switch (type) {
    case "BertPreTokenizer":
    case "WhitespaceSplit":
      return { type };
    case "Metaspace": {
      const adds = step.get("add_prefix_space").flag() ?? true;
      const scheme = step.get("prepend_scheme").text() ?? (adds ? "always" : "never");
      if (scheme !== "always" && scheme !== "first" && scheme !== "never") throw new NoRule(type);
      return { type, scheme, splits: step.get("split").flag() ?? true };
    }
    case "Split": {
      const behavior = step.get("behavior").text();
      // A cut before spaces, which were already replaced, changes nothing.
      if (step.get("pattern").get("String").text() === " " && behavior === "MergedWithPrevious")
        return { type: "Spaces" };
      throw new NoRule(type);
    }
    default:
      throw new NoRule(type);
  }
}

/** The patterns of byte-level files are known by a name. */
function byteLevelWords({ preTokenizers }: TokenizerJson, pairs: Pairs): WordRule[] {
  const name = pairs.get(`${keyPrefix}pre`)?.value;
  const byteLevel = preTokenizers.find((step) => typeOf(step) === "ByteLevel");
  if (typeof name !== "string" || byteLevel === undefined) throw new NoRule("ByteLevel");
  const cuts: WordRule = { type: "Patterns", name };
  if (!(byteLevel.get("add_prefix_space").flag() ?? false)) return [cuts];
  const isLast = byteLevel === preTokenizers.at(-1);
  if (isLast && byteLevel.get("use_regex").flag() === false) return [cuts, { type: "PrefixSpace" }];
  if (preTokenizers.length === 1) return [{ type: "PrefixSpace" }, cuts];
  throw new NoRule("ByteLevel");
}

/** Pieces inside a word whose text begins like that of a piece at the start of one. */
function insidePieces({ model }: TokenizerJson, types: readonly number[]): number[] {
  const inside = model.get("continuing_subword_prefix").text() ?? "##";
  const vocabulary = Object.entries(model.get("vocab").record() ?? {}) as [string, number][];
  return vocabulary
    .filter(([text, id]) => types[id] === tokenTypes.normal && inside !== "" && text.startsWith(inside + spaceSymbol))
    .map(([, id]) => id);
}

function required(text: string | null): string {
  if (text === null) throw new NoRule("text");
  return text;
}
