// Resumed turns: converts the messages of a saved session to the turns of a conversation.
import type { Session } from "../../../actors/api/agent/sessions.ts";
import type { Turn } from "../../run/conversation.ts";

/** Note at the end of an interrupted answer. It tells the model that the user interrupted the answer. */
const interruptedNote = "[The user interrupted this answer.]";

/** Returns the text of an interrupted answer as it is kept in the conversation. */
export function interruptedAnswer(text: string): string {
  return text === "" ? interruptedNote : `${text}\n${interruptedNote}`;
}

/** System prompt and turns of a session, as its user sees them. An answer consists of the texts of all its tool rounds. */
export interface ResumedConversation {
  readonly system: string | null;
  readonly turns: readonly Turn[];
}

export function resumedConversation({ messages, digests }: Pick<Session, "messages" | "digests">): ResumedConversation {
  let system: string | null = null;
  const turns: Turn[] = [];
  // `visible` is the index of a message among those that the user sees. `digests` has one entry for each of these, but none for the
  // last answer of a run that was cut off. That answer is skipped here, because the agent loop adds it to the next request.
  for (const { message, visible } of messages.filter((one) => one.visible < digests.length)) {
    const { role, content } = message;
    if (role === "system" && visible === 0) system = content;
    else if (role === "user") turns.push({ question: content, answer: interruptedAnswer(""), isCut: true });
    else if (role === "assistant") answered(turns, content);
  }
  return { system, turns };
}

/** Adds the text of a tool round to the answer of the last turn. */
function answered(turns: Turn[], text: string): void {
  const last = turns.pop();
  if (last === undefined) return;
  turns.push({ question: last.question, answer: last.isCut ? text : last.answer + text, isCut: false });
}
