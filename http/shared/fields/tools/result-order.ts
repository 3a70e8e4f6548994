// Order of tool results: sorts the results of a message's tool calls into the order of the calls. Clients that run calls
// concurrently may send results in the order in which the calls ended. Most chat templates omit call ids, so the model can
// match results only by order.
import type { ChatMessage } from "../../../../engines/generation.ts";

/** Returns the messages with sorted tool results. Results without a call stay after the other results. */
export function resultsInCallOrder(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const ordered = [...messages];
  for (const [i, { toolCalls = [] }] of messages.entries()) {
    if (toolCalls.length < 2) continue;
    const ids = toolCalls.map(({ id }) => id);
    const place = ({ toolCallId = "" }: ChatMessage) =>
      ids.includes(toolCallId) ? ids.indexOf(toolCallId) : ids.length;
    const results = resultsAfter(messages, i);
    ordered.splice(i + 1, results.length, ...results.sort((one, other) => place(one) - place(other)));
  }
  return ordered;
}

function resultsAfter(messages: readonly ChatMessage[], at: number): ChatMessage[] {
  const end = messages.findIndex(({ role }, i) => i > at && role !== "tool");
  return messages.slice(at + 1, end < 0 ? messages.length : end);
}
