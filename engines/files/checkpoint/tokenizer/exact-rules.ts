// Exact rules of a tokenizer.json: its steps as data for troupe's own tokenizer, for cases that GGUF keys can express only approximately.
// The rules are written into the GGUF file under troupe's own key, which llama.cpp ignores.

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

/** Maximum word length of WordPiece in characters, if a file names none. */
const usualWord = 100;

/** Thrown for a step that has no exact rule. */
class NoRule extends Error {}

/**
 * Adds the exact rules of a tokenizer to its pairs. Returns false and adds nothing if a step is unknown. The tokenizer then follows
 * llama.cpp's rules.
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

/** Returns the maximum word length in characters. Splitting a word takes quadratic time, so a much larger maximum has no exact rule. */
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
      // Splits after spaces. This has no effect if an earlier step replaced all spaces.
      if (step.get("pattern").get("String").text() === " " && behavior === "MergedWithPrevious")
        return { type: "Spaces" };
      throw new NoRule(type);
    }
    default:
      throw new NoRule(type);
  }
}

/** Returns the word rules of a byte-level tokenizer. Its patterns are identified by the name of the pre-tokenizer. */
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

/**
 * Returns the ids of pieces inside a word ("##…") whose text after the prefix begins with U+2581. In a GGUF file, which omits the prefix,
 * these pieces look like pieces at the start of a word.
 */
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
