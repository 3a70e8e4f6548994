// Owns cutting a text into words with the passes of a pre-tokenizer (engines/text/tokenizer/encoding/pre-tokenizers.ts has the table).
// Linear in the text for every rule of the table: a hostile text must not stall the thread.
import { laterCharacters } from "./later-characters.ts";

/** One cutting pass: every match is a word of its own, and so is the text between matches. */
export type Rule = Pattern | ((shape: string, cut: Cut) => void);

interface Pattern {
  readonly pattern: RegExp;
  /** It asks what kind a character is; others see characters that llama.cpp does not know as they are. */
  readonly usesKinds: boolean;
}

/** Takes the bounds of the next word. */
type Cut = (start: number, end: number) => void;

// Rules see texts in which all spaces are ASCII (as splitWords gives them), so \s need know only those: JavaScript's own has one character
// too many and one too few.
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

/** `text` with characters that llama.cpp does not know as ones that no version assigns, one or two code units long as they are. */
function shapeOf(text: string): string {
  return text.replace(later, (char) => (char.length === 1 ? "\u0378" : "\u{e0080}"));
}

/** Calls `emit` with the words of `text` in order; together they are `text`. */
export function splitWords(text: string, rules: readonly Rule[], emit: (word: string) => void): void {
  const spaced = text.replace(spaceOutsideAscii, "\v");
  const shape = shapeOf(spaced);
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
 * Cuts runs of `digits` into threes from the right: 1234567 is 1, 234, 567. One pattern for it would be quadratic. Where
 * `takesText` is true the first cut takes the text before the run along, as llama.cpp's code for it does.
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
