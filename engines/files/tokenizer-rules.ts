// Exact rules of a tokenizer: stored under troupe's own key in GGUF files that troupe made from a tokenizer.json. The standard keys
// describe llama.cpp's tokenizer, which differs from the official one for some texts. Both engines get their tokens from troupe's
// tokenizer, so both follow these rules.
import { ServerError } from "../../runtime/errors.ts";

export const exactRulesKey = "troupe.tokenizer.rules";
/** GGUF key of the merges of a vocabulary with scores, if the scores do not express them exactly. */
export const exactMergesKey = "troupe.tokenizer.merges";

/** A change of a text before it is split into words. */
export type NormalizerRule =
  | { readonly type: "NFC" | "NFD" | "NFKC" | "NFKD" }
  | { readonly type: "Lowercase" | "StripAccents" | "Precompiled" }
  | { readonly type: "Prepend"; readonly text: string }
  | { readonly type: "Strip"; readonly left: boolean; readonly right: boolean }
  | { readonly type: "Replace"; readonly text: string; readonly content: string }
  | { readonly type: "JoinSpaces"; readonly least: number; readonly content: string }
  | {
      readonly type: "BertNormalizer";
      readonly cleans: boolean;
      readonly separates: boolean;
      readonly strips: boolean;
      readonly lowersCase: boolean;
    };

/** A rule that splits a text into words. `Patterns`: the patterns of the pre-tokenizer `name`. */
export type WordRule =
  | { readonly type: "BertPreTokenizer" | "WhitespaceSplit" | "PrefixSpace" | "Spaces" }
  | { readonly type: "Patterns"; readonly name: string }
  | { readonly type: "Metaspace"; readonly scheme: "always" | "first" | "never"; readonly splits: boolean };

export interface ExactRules {
  readonly normalizers: readonly NormalizerRule[];
  readonly words: readonly WordRule[];
  /** Added tokens that are searched in normalized text, or that have rules: "lstrip", "rstrip", "single_word". */
  readonly added: readonly { readonly id: number; readonly normalized: boolean; readonly rules: readonly string[] }[];
  readonly model: {
    readonly unknown: number | null;
    readonly fusesUnknown: boolean;
    readonly hasBytes: boolean;
    readonly takesWords: boolean;
    readonly longestWord: number;
  };
  /** WordPiece: ids of pieces inside a word that look like pieces at the start of a word, because their text begins with U+2581. */
  readonly inside: readonly number[];
}

/** Reads the rules. Throws `model_file_invalid` if they are not of the form that troupe writes. */
export function parseExactRules(text: string): ExactRules {
  try {
    const { normalizers, words, added, model, inside } = JSON.parse(text);
    const lists = [normalizers, words, added, inside];
    if (lists.every(Array.isArray) && typeof model === "object" && model !== null) {
      return { normalizers, words, added, model, inside };
    }
  } catch {
    // Parse errors are ignored, because the error below names the key.
  }
  throw new ServerError("model_file_invalid", `${exactRulesKey} is not what troupe writes; convert the model again`);
}
