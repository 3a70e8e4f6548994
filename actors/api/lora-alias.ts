// LoRA alias: checks adapter aliases in settings and requests. Expects a trimmed alias.

/** Maximum length of an alias, in bytes of UTF-8. */
export const maxAliasBytes = 256;

/** Control and format characters, line separators and lone surrogates. Logs and headers cannot show these unchanged. */
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;

/** Returns why the alias is invalid, phrased as the end of the sentence "the alias …"; null = valid. */
export function aliasFault(alias: string): string | null {
  const bytes = Buffer.byteLength(alias);
  if (alias === "") return "is empty";
  if (bytes > maxAliasBytes) return `is ${bytes} bytes long`;
  return unprintable.test(alias) ? "has characters that cannot be printed" : null;
}
