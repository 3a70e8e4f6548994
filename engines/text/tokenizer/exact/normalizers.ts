// Exact normalizers: change a text as the normalizers of Hugging Face's tokenizers package do, in linear time.
import { ServerError } from "../../../../runtime/errors.ts";
import { exactRulesKey, type NormalizerRule } from "../../../files/tokenizer-rules.ts";
import type { CharactersMap } from "../encoding/characters-map.ts";
import { ideographs } from "../encoding/word-piece.ts";
import { graphemeReplacer } from "./graphemes.ts";
import { combiningMarks, decomposable, invisible, nonspacingMarks } from "./unicode-versions.ts";

export type Normalize = (text: string) => string;

/** Content of a regular expression's character class: white space as Unicode defines it. */
export const whiteSpace = String.raw`\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000`;
const spaces = new RegExp(`[${whiteSpace}]`, "gu");
const leading = new RegExp(`^[${whiteSpace}]+`, "u");
const separate = new RegExp(`[${ideographs}]`, "gu");

/** Returns the normalizer of a rule. `map`: the compiled character map of the model file. */
export function normalizerOf(rule: NormalizerRule, map: CharactersMap | null): Normalize {
  switch (rule.type) {
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD":
      return (text) => normalized(text, rule.type);
    case "Lowercase":
      return lowerCase;
    case "StripAccents":
      return (text) => text.replace(combiningMarks, "");
    case "Precompiled":
      return map === null ? (text) => text : graphemeReplacer(map);
    case "Prepend":
      return (text) => (text === "" ? "" : rule.text + text);
    case "Strip":
      return (text) => stripped(text, rule.left, rule.right);
    case "Replace":
      return (text) => text.replaceAll(rule.text, () => rule.content);
    case "JoinSpaces": {
      const run = new RegExp(` {${Number(rule.least)},}`, "g");
      return (text) => text.replace(run, () => rule.content);
    }
    case "BertNormalizer": {
      const steps: Normalize[] = [];
      if (rule.cleans) steps.push((text) => text.replace(invisible, "").replace(spaces, " "));
      if (rule.separates) steps.push((text) => text.replace(separate, " $& "));
      if (rule.strips) steps.push((text) => normalized(text, "NFD").replace(nonspacingMarks, ""));
      if (rule.lowersCase) steps.push(lowerCase);
      return (text) => steps.reduce((changed, step) => step(changed), text);
    }
    default:
      throw new ServerError(
        "model_file_invalid",
        `${exactRulesKey} has an unknown normalizer; convert the model again`,
      );
  }
}

/**
 * Maximum number of code units in a run of combining marks. Normalization sorts the marks of a run in quadratic time.
 * Words have runs of fewer than ten.
 */
const longestMarks = 512;

function normalized(text: string, form: "NFC" | "NFD" | "NFKC" | "NFKD"): string {
  if (onlyAscii.test(text)) return text;
  for (const [marks] of text.matchAll(/\p{M}+/gu)) {
    // vocabulary.ts converts this error to an `invalid_value` error about the text.
    if (marks.length > longestMarks) throw new RangeError(`a run of ${marks.length} combining marks`);
  }
  return text.replace(decomposable, (part) => part.normalize(form));
}

const onlyAscii = /^[\0-\x7f]*$/;

/** Converts a text to lower case character by character, so that a sigma at the end of a word becomes σ, not ς. */
function lowerCase(text: string): string {
  return text.replaceAll("\u03a3", "\u03c3").toLowerCase();
}

function stripped(text: string, left: boolean, right: boolean): string {
  const start = left ? (leading.exec(text)?.[0].length ?? 0) : 0;
  let end = text.length;
  // A regular expression that matches at the end takes quadratic time for many spaces, so this is a loop.
  if (right) while (end > start && isSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

const spaceCodes = new Set(
  Array.from({ length: 0x3001 }, (_, code) => code).filter((code) =>
    /[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/.test(String.fromCharCode(code)),
  ),
);

export function isSpace(code: number): boolean {
  return spaceCodes.has(code);
}
