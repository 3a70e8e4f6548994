// Owns the alphabet in which byte-level vocabularies spell bytes as visible characters. Printable Latin-1 stands for itself,
// the other 68 bytes for U+0100 and up, in order. Pure tables.

let nextInvisible = 0x100;

/** The character that spells each byte. */
export const byteSpellings: readonly string[] = Array.from({ length: 256 }, (_, byte) => {
  const isVisible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  return String.fromCharCode(isVisible ? byte : nextInvisible++);
});

const byteOfChar = new Map(byteSpellings.map((char, byte) => [char, byte]));

const onlySelfSpelled = /^[\x21-\x7e]*$/;

/** `text` with each UTF-8 byte spelled as one character. */
export function spellBytes(text: string): string {
  if (onlySelfSpelled.test(text)) return text;
  let spelled = "";
  for (const byte of Buffer.from(text, "utf8")) spelled += byteSpellings[byte];
  return spelled;
}

/** The bytes `spelled` stands for; a character outside the alphabet stands for its own UTF-8. */
export function readSpelledBytes(spelled: string): Uint8Array {
  const bytes: number[] = [];
  for (const char of spelled) {
    const byte = byteOfChar.get(char);
    if (byte === undefined) bytes.push(...Buffer.from(char, "utf8"));
    else bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}
