// Message digest: identifies a message of a conversation as the client sees it, so that a session can be matched with the
// messages of a later request without comparing their texts.
import { createHash } from "node:crypto";
import type { ChatMessage } from "../../../engines/generation.ts";

/** Fields of a message that clients send back unchanged in later requests. Reasoning and names are excluded. */
export type VisibleMessage = Pick<ChatMessage, "role" | "content" | "toolCalls" | "toolCallId">;

/** Returns the digest of a message: 16 hex digits. */
export function messageDigest({ role, content, toolCalls = [], toolCallId }: VisibleMessage): string {
  const calls = toolCalls.map(({ id, name, arguments: args }) => [id, name, canonical(args)]);
  return createHash("sha256")
    .update(JSON.stringify([role, content, calls, toolCallId ?? null]))
    .digest("hex")
    .slice(0, 16);
}

/**
 * Returns the canonical JSON text of a call's arguments, so that equal values have equal texts. Text that is not JSON is returned
 * unchanged.
 */
function canonical(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), withSortedKeys);
  } catch {
    return text;
  }
}

function withSortedKeys(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
}
