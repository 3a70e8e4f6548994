// Escape sequences in the strings of Lark and GBNF grammars. No side effects.

const letters: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r", f: "\f", v: "\v", b: "\b", "0": "\0" };

/** Replaces escape sequences by their characters. `noCharacter` creates the error for a code point above U+10FFFF. */
export function unescaped(text: string, noCharacter: (sequence: string) => Error): string {
  return text.replace(/\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)/gu, (sequence, code: string) => {
    if (code.length === 1) return letters[code] ?? code;
    const char = Number.parseInt(code.slice(1), 16);
    if (char > 0x10ffff) throw noCharacter(sequence);
    return String.fromCodePoint(char);
  });
}
