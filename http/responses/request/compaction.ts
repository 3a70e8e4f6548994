// Compaction item: a summary that replaces a conversation. The summary is encoded but not encrypted, because the client knows
// the conversation anyway, and the server has no encryption key.

/** Maximum length in characters of a compaction item's content. */
export const MAX_COMPACTION_LENGTH = 10 * 2 ** 20;
/** Prefix that identifies the encoding, so that content of other servers is detected. */
const PREFIX = "troupe-summary-1.";

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Returns the content of a compaction item. */
export function compactionContent(summary: string): string {
  return PREFIX + Buffer.from(summary).toString("base64url");
}

/** Returns the summary in the content of a compaction item; null if this server did not create the content. */
export function summaryIn(content: string): string | null {
  if (!content.startsWith(PREFIX)) return null;
  try {
    return decoder.decode(Buffer.from(content.slice(PREFIX.length), "base64url"));
  } catch {
    return null;
  }
}
