// Continuation of the last assistant message, in all chat protocols. If a conversation ends with an assistant message that has
// text and no tool calls, the output continues that message.
import type { ChatMessage } from "../../engines/generation.ts";

/** Returns whether the output can continue the last message. */
export function continuesLast(messages: readonly ChatMessage[]): boolean {
  const last = messages.at(-1);
  return last !== undefined && isAnswer(last) && (last.content !== "" || (last.reasoning ?? "") !== "");
}

/**
 * Returns the messages without an empty assistant message at the end, which some clients send as a placeholder for the output.
 */
export function withoutEmptyEnd(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const last = messages.at(-1);
  const isEmpty = last !== undefined && isAnswer(last) && last.content === "" && (last.reasoning ?? "") === "";
  return isEmpty && messages.length > 1 ? messages.slice(0, -1) : messages;
}

function isAnswer({ role, toolCalls = [] }: ChatMessage): boolean {
  return role === "assistant" && toolCalls.length === 0;
}
