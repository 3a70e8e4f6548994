// Owns cutting a text into words with the passes of a pre-tokenizer (engines/tokenizer/pre-tokenizers.ts has the table).
// Linear in the text for every rule of the table: a hostile text must not stall the thread.

/** One cutting pass: every match is a word of its own, and so is the text between matches. */
export type Rule = RegExp | ((word: string, emit: (piece: string) => void) => void);

// Spaces outside ASCII are matched as a vertical tab (see splitWords), so \s need know only ASCII: JavaScript's own has one
// character too many and one too few.
export function compileRule(source: string): RegExp {
  const withAsciiSpaces = source.replaceAll(/\[\^?|\\s|\\S|\\.|\]/g, spellSpaceClass());
  return new RegExp(withAsciiSpaces, "gu");
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

/** Calls `emit` with the words of `text` in order; together they are `text`. */
export function splitWords(text: string, rules: readonly Rule[], emit: (word: string) => void): void {
  const apply = (word: string, depth: number): void => {
    const rule = rules[depth];
    if (rule === undefined) emit(word);
    else if (typeof rule === "function") rule(word, (piece) => apply(piece, depth + 1));
    else {
      let end = 0;
      const shape = word.replace(spaceOutsideAscii, "\v");
      for (const match of shape.matchAll(rule)) {
        if (match.index > end) apply(word.slice(end, match.index), depth + 1);
        const start = match.index;
        end = start + match[0].length;
        apply(word.slice(start, end), depth + 1);
      }
      if (end < word.length) apply(word.slice(end), depth + 1);
    }
  };
  if (text !== "") apply(text, 0);
}

/** Cuts runs of `digits` into threes from the right: 1234567 is 1, 234, 567. One pattern for it would be quadratic. */
export function inThrees(digits: RegExp): Rule {
  return (word, emit) => {
    let end = 0;
    for (const match of word.matchAll(digits)) {
      if (match.index > end) emit(word.slice(end, match.index));
      const run = [...match[0]];
      for (let from = 0, to = run.length % 3 || 3; from < run.length; from = to, to += 3) {
        emit(run.slice(from, to).join(""));
      }
      end = match.index + match[0].length;
    }
    if (end < word.length) emit(word.slice(end));
  };
}
