// Continuation: prepares the last assistant message so that the prompt can end inside it. The message is rendered
// with a marker character before and after its text, and the prompt is cut at the second marker. So white space at
// both ends of the text is kept, although many templates trim messages. Called by chat-template.ts. No side effects.
import { ServerError } from "../../../runtime/errors.ts";
import type { ThinkingTags } from "../parse/tool-format.ts";
import type { ParsedMessage } from "./template-messages.ts";

/** Two marker characters that occur in no other text of the prompt. */
export interface ContinuationMarks {
  readonly start: string;
  readonly end: string;
}

/** The part of the last message that the output continues. */
export type ContinuedPart = "content" | "reasoning";

export interface ContinuedMessage {
  readonly message: ParsedMessage;
  readonly part: ContinuedPart;
}

/**
 * Parses thinking tags in the content. Returns the parsed message, and the part to continue: the reasoning if the
 * message has no content yet. Throws ServerError if the message has nothing that can be continued.
 */
export function continuedMessage(message: ParsedMessage | undefined, tags: ThinkingTags | null): ContinuedMessage {
  if (message?.role !== "assistant" || (message.toolCalls ?? []).length > 0) {
    throw refused("invalid_value", 'expected a message of role "assistant" without tool calls at the end to continue');
  }
  const split = splitThinking(message, tags);
  if (split.content !== "") return { message: split, part: "content" };
  if (split.reasoning !== undefined) return { message: split, part: "reasoning" };
  throw refused("invalid_value", "expected text in the assistant message to continue");
}

/** Moves text between thinking tags at the start of the content to the reasoning. The end tag may be missing. */
function splitThinking(message: ParsedMessage, tags: ThinkingTags | null): ParsedMessage {
  const { content } = message;
  if (tags === null || message.reasoning !== undefined || !content.trimStart().startsWith(tags.begin)) return message;
  const thought = content.trimStart().slice(tags.begin.length);
  const end = thought.indexOf(tags.end);
  if (end < 0) return { ...message, reasoning: thought.trimStart(), content: "" };
  return {
    ...message,
    reasoning: thought.slice(0, end).trim(),
    content: thought.slice(end + tags.end.length).trimStart(),
  };
}

export function withMarks({ message, part }: ContinuedMessage, { start, end }: ContinuationMarks): ParsedMessage {
  return { ...message, [part]: start + (message[part] ?? "") + end };
}

/**
 * Returns the rendered text up to the end of the continued part, without the markers. Throws ServerError
 * `unsupported` if the rendered text does not contain the part unchanged.
 */
export function cutAtEnd(text: string, { message, part }: ContinuedMessage, { start, end }: ContinuationMarks): string {
  const to = text.lastIndexOf(end);
  const from = text.lastIndexOf(start, to);
  if (to < 0 || from < 0 || text.slice(from + start.length, to) !== message[part]) {
    const problem = `the model's chat template does not show the ${part} of the last assistant message as it was sent`;
    throw refused("unsupported", `${problem}, so it cannot be continued; end the conversation with a user message`);
  }
  return text.slice(0, to).replaceAll(start, "").replaceAll(end, "");
}

function refused(code: "invalid_value" | "unsupported", message: string): ServerError {
  return new ServerError(code, `messages: ${message}`, { param: "messages" });
}
