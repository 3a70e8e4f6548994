// Order of tool results: the results of one message's calls are put into the order of its calls. Clients that run calls at once
// may send the results in the order in which the calls ended, and most chat templates write results without the ids of calls.
import type { ChatMessage } from "../../../../engines/generation.ts";

/** Returns the messages with ordered results. A result without a call keeps its place after the others. */
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
