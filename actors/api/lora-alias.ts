// LoRA alias: the rule for the alias of an adapter, in settings and requests. Expects a trimmed alias.

/** Limit of an alias in UTF-8. */
export const maxAliasBytes = 256;

/** Control and format characters, line separators and lone surrogates: a log or a header does not show them as they are. */
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;

/** The fault, as the end of the sentence "the alias …"; null: none. */
export function aliasFault(alias: string): string | null {
  const bytes = Buffer.byteLength(alias);
  if (alias === "") return "is empty";
  if (bytes > maxAliasBytes) return `is ${bytes} bytes long`;
  return unprintable.test(alias) ? "has characters that cannot be printed" : null;
}
