// Owns the rule for the alias of a LoRA adapter, which settings and requests share. Called with white space around it removed.

/** Of an alias, in UTF-8. */
export const maxAliasBytes = 256;

/** Control and format characters, separators of lines, halves of characters: what a log or a header shows as something else, or not at all. */
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;

/** What completes "the alias …"; null where nothing is wrong with it. */
export function aliasFault(alias: string): string | null {
  const bytes = Buffer.byteLength(alias);
  if (alias === "") return "is empty";
  if (bytes > maxAliasBytes) return `is ${bytes} bytes long`;
  return unprintable.test(alias) ? "has characters that cannot be printed" : null;
}
