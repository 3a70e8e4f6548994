// Order of tool results: sorts the results of a message's tool calls into the order of the calls. Clients that run calls
// concurrently may send results in the order in which the calls ended. Most chat templates omit call ids, so the model can
// match results only by order.
import type { ChatMessage, ToolCall } from "../../../../engines/generation.ts";

/** Returns the messages with sorted tool results. Results without a call stay after the other results. */
export function resultsInCallOrder(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const ordered: ChatMessage[] = [];
  for (let at = 0; at < messages.length; ) {
    const message = messages[at] as ChatMessage;
    const results = resultsAfter(messages, at);
    ordered.push(message);
    for (const result of sorted(results, message.toolCalls ?? [])) ordered.push(result);
    at += 1 + results.length;
  }
  return ordered;
}

function resultsAfter(messages: readonly ChatMessage[], at: number): ChatMessage[] {
  let end = at + 1;
  while (messages[end]?.role === "tool") end++;
  return messages.slice(at + 1, end);
}

function sorted(results: ChatMessage[], calls: readonly ToolCall[]): readonly ChatMessage[] {
  if (calls.length < 2) return results;
  const places = new Map<string, number>();
  for (const [i, { id }] of calls.entries()) if (!places.has(id)) places.set(id, i);
  const place = ({ toolCallId = "" }: ChatMessage) => places.get(toolCallId) ?? calls.length;
  return results.sort((one, other) => place(one) - place(other));
}
