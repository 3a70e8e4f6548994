// Text starts: the beginnings of a response's input and output, which lists of responses show.
import type { OutputItem } from "../fold/resource-schema.ts";
import type { InputItem } from "../request/input-items.ts";

/** Maximum number of characters of a text start. */
export const TEXT_START_LENGTH = 200;

/** Returns the beginning of the user's last message; null if it has no text. */
export function inputStart(items: readonly InputItem[]): string | null {
  const last = items.findLast((item) => "role" in item && item.role === "user");
  if (last === undefined || !("role" in last)) return null;
  const { content } = last;
  if (typeof content === "string") return startOf([content]);
  return startOf(content.flatMap((part) => ("text" in part ? [part.text] : [])));
}

/** Returns the beginning of the output text; null if there is no text. */
export function outputStart(output: readonly OutputItem[]): string | null {
  const parts = output.flatMap((item) => (item.type === "message" ? item.content : []));
  return startOf(parts.flatMap((part) => (part.type === "output_text" ? [part.text] : [])));
}

/** Returns the beginning of the joined texts; null if they are empty. Never splits a character. */
function startOf(texts: readonly string[]): string | null {
  let start = "";
  for (const text of texts) {
    start += text.slice(0, TEXT_START_LENGTH - start.length);
    if (start.length === TEXT_START_LENGTH) break;
  }
  const isCut = /[\ud800-\udbff]$/.test(start);
  return start === "" ? null : isCut ? start.slice(0, -1) : start;
}
