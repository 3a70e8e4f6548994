// Byte alphabet: represents bytes as visible characters, as byte-level BPE vocabularies do. Printable Latin-1
// characters represent themselves. The characters from U+0100 represent the other 68 bytes, in order. No side
// effects.

const noByte = -1;
let nextInvisible = 0x100;

/** The character that represents each byte. */
export const byteSpellings: readonly string[] = Array.from({ length: 256 }, (_, byte) => {
  const isVisible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  return String.fromCharCode(isVisible ? byte : nextInvisible++);
});

/** Byte by character code; `noByte` if the character represents no byte. */
const byteOfCode = new Int16Array(nextInvisible).fill(noByte);
for (const [byte, spelling] of byteSpellings.entries()) byteOfCode[spelling.charCodeAt(0)] = byte;

const onlySelfSpelled = /^[\x21-\x7e]*$/;

/** Returns `text` with one character for each of its UTF-8 bytes. */
export function spellBytes(text: string): string {
  if (onlySelfSpelled.test(text)) return text;
  let spelled = "";
  for (const byte of Buffer.from(text, "utf8")) spelled += byteSpellings[byte];
  return spelled;
}

/**
 * Writes the bytes that `spelled` represents to `target` and returns the end of the written bytes. A character outside
 * the alphabet is written as its own UTF-8.
 */
export function writeSpelledBytes(spelled: string, target: Buffer, start: number): number {
  let end = start;
  for (let i = 0; i < spelled.length; i++) {
    const byte = byteOfCode[spelled.charCodeAt(i)] ?? noByte;
    if (byte !== noByte) target[end++] = byte;
    else {
      const char = String.fromCodePoint(spelled.codePointAt(i) as number);
      end += target.write(char, end);
      i += char.length - 1;
    }
  }
  return end;
}
