// Word rules: cut a text into words with the passes of a pre-tokenizer (table: pre-tokenizers.ts). Every rule takes
// time linear in the text, so a hostile text cannot stall the thread.
import { laterCharacters } from "./later-characters.ts";

/** One cutting pass. Every match is a word, and so is the text between two matches. */
export type Rule = Pattern | ((shape: string, cut: Cut) => void);

interface Pattern {
  readonly pattern: RegExp;
  /**
   * True if the rule tests character categories (\p). Such a rule sees unassigned characters instead of the characters
   * added after Unicode 15.0.
   */
  readonly usesKinds: boolean;
}

/** Receives the bounds of the next word. */
type Cut = (start: number, end: number) => void;

// Compiles a rule from its pattern. In the pattern, \s matches only ASCII spaces, because splitWords first replaces all
// other spaces by the ASCII space \v. The \s of JavaScript differs from that of llama.cpp in two characters.
export function compileRule(source: string): Pattern {
  const withAsciiSpaces = source.replaceAll(/\[\^?|\\s|\\S|\\.|\]/g, spellSpaceClass());
  return { pattern: new RegExp(withAsciiSpaces, "gu"), usesKinds: /\\p\{/i.test(source) };
}

function spellSpaceClass(): (part: string) => string {
  let isInsideClass = false;
  return (part) => {
    if (part.startsWith("[")) isInsideClass = true;
    else if (part === "]") isInsideClass = false;
    else if (part === "\\s") return isInsideClass ? "\\t-\\r " : "[\\t-\\r ]";
    else if (part === "\\S") return "[^\\t-\\r ]";
    return part;
  };
}

const spaceOutsideAscii = /[\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/g;
const later = new RegExp(`[${laterCharacters}]`, "gu");

/**
 * Returns `text` with the characters that match `unassigned` replaced by unassigned characters of the same length
 * (one or two code units).
 */
function shapeOf(text: string, unassigned: RegExp): string {
  return text.replace(unassigned, (char) => (char.length === 1 ? "\u0378" : "\u{e0080}"));
}

/**
 * Calls `emit` with the words of `text` in order. Joined, the words equal `text`. `unassigned`: matches the
 * characters that rules must treat as unassigned.
 */
export function splitWords(
  text: string,
  rules: readonly Rule[],
  emit: (word: string) => void,
  unassigned = later,
): void {
  const spaced = text.replace(spaceOutsideAscii, "\v");
  const shape = shapeOf(spaced, unassigned);
  const apply = (start: number, end: number, depth: number): void => {
    const rule = rules[depth];
    if (start === end) return;
    if (rule === undefined) emit(text.slice(start, end));
    else if (typeof rule === "function") {
      rule(shape.slice(start, end), (from, to) => apply(start + from, start + to, depth + 1));
    } else {
      let last = start;
      const seen = rule.usesKinds ? shape : spaced;
      for (const match of seen.slice(start, end).matchAll(rule.pattern)) {
        const found = start + match.index;
        apply(last, found, depth + 1);
        last = found + match[0].length;
        apply(found, last, depth + 1);
      }
      apply(last, end, depth + 1);
    }
  };
  apply(0, text.length, 0);
}

/**
 * Returns a rule that cuts runs of `digits` into groups of three from the right: 1234567 becomes 1, 234, 567. A
 * regular expression would take quadratic time. If `takesText` is true, the first group includes the text before
 * the run, as in llama.cpp's code.
 */
export function inThrees(digits: RegExp, takesText: boolean): Rule {
  return (shape, cut) => {
    let last = 0;
    for (const { index, 0: found } of shape.matchAll(digits)) {
      if (!takesText) {
        cut(last, index);
        last = index;
      }
      const run = [...found];
      let end = index;
      run.forEach((digit, at) => {
        end += digit.length;
        if ((run.length - at) % 3 !== 1) return;
        cut(last, end);
        last = end;
      });
    }
    cut(last, shape.length);
  };
}
