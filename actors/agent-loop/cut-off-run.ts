// Cut-off run: a run that ended before its answer was complete. The session keeps its messages. The client has received some of
// them and may send these back in its next request.
import type { GenerateRequest, PromptChanges } from "../../engines/generation.ts";
import { messagesIn } from "../api/sealed-content.ts";

/**
 * Changes the splices of a session (replacements and insertions of messages in the request's chat), so that no call of a cut-off
 * run appears twice in the prompt. If the request already contains calls of that run, the session's messages replace them, and
 * only the later messages of the run are inserted.
 *
 * `count`: number of messages of the request. `ids`: ids of the request's calls of server tools.
 */
export function withoutRepeats(
  splices: PromptChanges["splices"],
  count: number,
  prompt: GenerateRequest["prompt"],
  ids: readonly string[],
): PromptChanges["splices"] {
  const cutOff = splices.find(({ remove }) => remove === 0);
  if (cutOff === undefined || cutOff.at === count || ids.length === 0) return splices;
  const sent = messagesIn(prompt).slice(cutOff.at);
  const repeated: { readonly at: number; readonly index: number }[] = [];
  for (const [i, { toolCalls, toolCallId }] of sent.entries()) {
    const id = toolCalls?.[0]?.id ?? toolCallId;
    const index = cutOff.messages.findIndex((own) =>
      toolCallId === undefined ? own.toolCalls?.some((call) => call.id === id) : own.toolCallId === id,
    );
    if (id === undefined || index === -1) break;
    repeated.push({ at: cutOff.at + i, index });
  }
  if (repeated.length === 0) return splices;
  const replaced = repeated.map(({ at, index }, i) => {
    const end = i === repeated.length - 1 ? cutOff.messages.length : index + 1;
    return { at, remove: 1, messages: cutOff.messages.slice(index, end) };
  });
  return [...splices.filter((one) => one !== cutOff), ...replaced];
}
