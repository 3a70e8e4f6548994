// Exact patterns of the pre-tokenizers for which llama.cpp's rules differ from those in tokenizer.json. Data only.
import { compileRule, inThrees, type Rule } from "../encoding/word-rules.ts";

const contraction = "(?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))?";
const upper = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const lower = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
const rest = String.raw` ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`;

/** Returns a pattern for words that may begin with capitals. */
function casedWords(digits: string, ending: string): string {
  const before = String.raw`[^\r\n\p{L}\p{N}]?`;
  return `${before}${upper}*${lower}+${ending}|${before}${upper}+${lower}*${ending}|${digits}|${rest}`;
}

const scripts = [
  String.raw`[\uac00-\ud7a3\u3131-\u318e]+`,
  String.raw`[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+`,
  String.raw`[\u3105-\u312f]+`,
  String.raw`[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+`,
].join("|");

const digit = String.raw`\p{N}`;
const threeDigits = String.raw`\p{N}{1,3}`;

const patterns: Readonly<Record<string, readonly (string | Rule)[]>> = {
  tekken: [casedWords(digit, "")],
  "granite-embed-multi-97m": [casedWords(threeDigits, contraction)],
  youtu: [scripts, casedWords(digit, contraction)],
  superbpe: [String.raw`\p{N}+`, inThrees(/\p{Nd}+/gu, false)],
  tiny_aya: [groupsBeforeBorder, casedWords(threeDigits, contraction)],
};

/**
 * Cuts a run of digits into groups of three from the right, unless a word character follows the run. Equivalent to
 * \d{1,3}(?=(?:\d{3})*\b), which takes quadratic time as a regular expression.
 */
function groupsBeforeBorder(shape: string, cut: (start: number, end: number) => void): void {
  let last = 0;
  for (const { index, 0: run } of shape.matchAll(/\p{Nd}+/gu)) {
    const end = index + run.length;
    if (isWordCharacter(shape, end)) continue;
    cut(last, index);
    let at = index;
    const digits = [...run];
    digits.forEach((char, i) => {
      const start = at;
      at += char.length;
      if (i === 0) last = start;
      if ((digits.length - i) % 3 !== 1) return;
      cut(last, at);
      last = at;
    });
  }
  cut(last, shape.length);
}

function isWordCharacter(text: string, at: number): boolean {
  const code = text.codePointAt(at);
  return code !== undefined && /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]/u.test(String.fromCodePoint(code));
}

const compiled = new Map<string, readonly Rule[]>();

/** Returns the exact rules of the pre-tokenizer with this name; null if llama.cpp's rules are exact. */
export function exactPatterns(name: string): readonly Rule[] | null {
  if (!Object.hasOwn(patterns, name)) return null;
  let rules = compiled.get(name);
  if (rules === undefined) {
    rules = (patterns[name] as readonly (string | Rule)[]).map((cut) =>
      typeof cut === "string" ? compileRule(cut) : cut,
    );
    compiled.set(name, rules);
  }
  return rules;
}
