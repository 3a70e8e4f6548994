// Visible text: makes text of models and tools safe to show on a terminal, so that it can neither control the terminal nor
// disguise itself as other text.

/**
 * Control characters except line feeds and tabs, and invisible characters that change the order or the look of other
 * characters.
 */
const hidden = /[^\P{Cc}\n\t]|\p{Cf}|[\u2028\u2029]/gu;

/** Replaces control and invisible characters by their code, for example `\u{1b}` for escape. CR LF becomes LF. */
export function visible(text: string): string {
  return text
    .replaceAll("\r\n", "\n")
    .replace(hidden, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Does the same as `visible`, for text that is shown within one line: also replaces line feeds and tabs by their codes. */
export function visibleLine(text: string): string {
  return visible(text).replaceAll("\n", "\\u{a}").replaceAll("\t", "\\u{9}");
}

const tab = "    ";

/**
 * Returns the first `limits.head` and the last `limits.tail` lines of a text, with a note on the lines between them. Each line
 * is cut to `limits.width` characters.
 */
export function excerpt(text: string, limits: ExcerptLimits): readonly string[] {
  const { head, tail, width } = limits;
  const lines = visible(text).replace(/\n+$/, "").replaceAll("\t", tab).split("\n");
  const cut = lines.map((line) => (line.length > width ? `${line.slice(0, width - 1)}…` : line));
  const left = cut.length - head - tail;
  if (left <= 1) return cut;
  return [...cut.slice(0, head), `… ${left} more lines …`, ...cut.slice(cut.length - tail)];
}

export interface ExcerptLimits {
  readonly head: number;
  readonly tail: number;
  readonly width: number;
}
