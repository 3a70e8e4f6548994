// Session messages: builds a session's messages from a request's chat and the messages that the run added, and converts them to
// the splices of a later request.
import type { ChatMessage, PromptChanges } from "../../engines/generation.ts";
import type { SessionMessage, SessionUpdate } from "../api/agent/sessions.ts";
import { messagesIn } from "../api/sealed-content.ts";

/** Returns the messages of a session after a request, each with the index of the client's message to which it belongs. */
export function messagesOf({
  prompt,
  splices,
  added,
  continuesAnswer,
}: Pick<SessionUpdate, "prompt" | "splices" | "added" | "continuesAnswer">): SessionMessage[] {
  const chat = messagesIn(prompt);
  const messages: SessionMessage[] = [];
  for (let visible = 0; visible <= chat.length; visible++) {
    const splice = splices.find(({ at }) => at === visible);
    const own = chat.slice(visible + (splice?.remove ?? 0), visible + 1);
    for (const message of [...(splice?.messages ?? []), ...own]) messages.push({ message, visible });
  }
  const visible = continuesAnswer ? chat.length - 1 : chat.length;
  for (const message of added) messages.push({ message, visible });
  return messages;
}

/**
 * Returns the splices for the first `common` messages of a client. Each splice replaces one message of the client with several
 * messages of the session, which the client sees as one message. If `cutOff` is true, a splice also inserts the next messages
 * of the session, which belong to a run that was cut off.
 */
export function splicesOf(
  messages: readonly SessionMessage[],
  common: number,
  cutOff: boolean,
): PromptChanges["splices"] {
  const groups = new Map<number, ChatMessage[]>();
  for (const { message, visible } of messages) {
    if (visible > common || (visible === common && !cutOff)) continue;
    const group = groups.get(visible);
    if (group === undefined) groups.set(visible, [message]);
    else group.push(message);
  }
  return [...groups]
    .filter(([at, group]) => at === common || group.length > 1)
    .sort(([one], [other]) => one - other)
    .map(([at, group]) => ({ at, remove: at === common ? 0 : 1, messages: group }));
}

/** Returns the ids of the tool calls in the most recent answer that has calls. */
export function lastCallsOf(messages: readonly SessionMessage[]): readonly string[] {
  const last = messages.findLast(({ message }) => (message.toolCalls ?? []).length > 0);
  const answer = messages.filter(({ visible }) => visible === last?.visible);
  return answer.flatMap(({ message }) => (message.toolCalls ?? []).map(({ id }) => id));
}
