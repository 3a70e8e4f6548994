// Messages of a chat request: translates them to ChatMessages, and detects contradictions among them.
import type { z } from "zod";
import type { InputFile } from "../../actors/api/agent/agents.ts";
import type { ChatMessage, ToolCall } from "../../engines/generation.ts";
import { inputFile } from "../shared/agent/file-part.ts";
import { continuesLast, withoutEmptyEnd } from "../shared/continuation.ts";
import { addConflicts, type Conflict } from "../shared/fields/conflicts.ts";
import { type ContentPart, contentOf, MediaCollector } from "../shared/fields/media-part.ts";
import { resultsInCallOrder } from "../shared/fields/tools/result-order.ts";
import type { WireMessage, WireMessages } from "./messages.ts";

type Assistant = Extract<WireMessage, { readonly role: "assistant" }>;

/** Returns the messages. Their images, videos and audio are added to `media`. Throws invalid_value if one cannot be read. */
export function conversation(messages: WireMessages, media: MediaCollector): readonly ChatMessage[] {
  if (typeof messages === "string") return [{ role: "user", content: messages }];
  return resultsInCallOrder(messages.map((message, i) => chatMessage(message, i, media)));
}

interface EndFields {
  readonly messages: WireMessages;
  readonly add_generation_prompt?: boolean | null | undefined;
  readonly continue_final_message?: boolean | null | undefined;
}

/** Returns the messages, and whether the output continues the last message. */
export function openConversation(
  body: EndFields,
  media = new MediaCollector(),
): {
  readonly messages: readonly ChatMessage[];
  readonly continuesLast?: true;
} {
  const messages = conversation(body.messages, media);
  const isNewTurn = body.add_generation_prompt === true || body.continue_final_message === false;
  if (isNewTurn) return { messages };
  return continuesLast(messages) ? { messages, continuesLast: true } : { messages: withoutEmptyEnd(messages) };
}

/** Adds an issue for each contradiction among the messages, and between them and the fields about their end. */
export function addMessageIssues(context: z.RefinementCtx, body: EndFields): void {
  const wrong = contradiction(body.messages);
  if (wrong !== null) {
    context.addIssue({ code: "custom", path: ["messages", ...wrong.path], message: wrong.message });
  }
  addConflicts(context, endConflicts(body));
}

/**
 * Yields the conflicts among `add_generation_prompt`, `continue_final_message` and the messages. The two fields decide whether
 * the output is a new message or continues the last one.
 */
function* endConflicts(body: EndFields): Iterable<Conflict> {
  const { add_generation_prompt: adds, continue_final_message: continues } = body;
  if (adds === true && continues === true) {
    yield ["continue_final_message", "true contradicts add_generation_prompt: true; send one of them"];
  } else if (adds === false && continues === false) {
    yield [
      "add_generation_prompt",
      "false needs continue_final_message: true, as the output would belong to no message",
    ];
  } else if (continues === true || adds === false) {
    if (continuesLast(conversation(body.messages, new MediaCollector()))) return;
    const field = continues === true ? "continue_final_message" : "add_generation_prompt";
    yield [
      field,
      `${continues === true} needs a message of role "assistant" with text and without tool calls at the end`,
    ];
  }
}

/** Returns the first contradiction in the messages, with the path of its field; null if there is none. */
function contradiction(
  messages: WireMessages,
): { readonly path: readonly [message: number, field: string]; readonly message: string } | null {
  if (typeof messages === "string") return null;
  const calls = new Set<string>();
  for (const [i, message] of messages.entries()) {
    if (message.role === "tool" && !calls.has(message.tool_call_id)) {
      const problem = 'expected the id of a call in an earlier message of role "assistant"';
      return { path: [i, "tool_call_id"], message: `${problem}, got ${JSON.stringify(message.tool_call_id)}` };
    }
    if (message.role !== "assistant") continue;
    for (const { id } of message.tool_calls ?? []) if (typeof id === "string") calls.add(id);
    const { reasoning, reasoning_content: other } = message;
    if (reasoning && other && reasoning !== other) {
      return { path: [i, "reasoning"], message: "contradicts reasoning_content; send one of them" };
    }
  }
  return null;
}

function chatMessage(message: WireMessage, index: number, media: MediaCollector): ChatMessage {
  const { name } = message;
  return {
    // `developer` is the newer name of `system`. It is replaced, because few chat templates know it.
    role: message.role === "developer" ? "system" : message.role,
    ...contentParts(message.content, index, media),
    ...(typeof name === "string" ? { name } : {}),
    ...(message.role === "assistant" ? ofAssistant(message) : {}),
    ...(message.role === "tool" ? { toolCallId: message.tool_call_id } : {}),
  };
}

function ofAssistant(message: Assistant): Pick<ChatMessage, "reasoning" | "toolCalls"> {
  const reasoning = message.reasoning_content || message.reasoning;
  const calls = message.tool_calls ?? [];
  return {
    ...(reasoning ? { reasoning } : {}),
    ...(calls.length === 0 ? {} : { toolCalls: calls.map(toolCall) }),
  };
}

function toolCall(call: NonNullable<Assistant["tool_calls"]>[number]): ToolCall {
  return { id: call.id ?? "", name: call.function.name, arguments: call.function.arguments };
}

function contentParts(
  content: WireMessage["content"],
  message: number,
  media: MediaCollector,
): Pick<ChatMessage, "content" | "media"> {
  if (typeof content === "string") return { content };
  const parts: ContentPart[] = [];
  for (const [k, part] of (content ?? []).entries()) {
    if (part.type === "text") parts.push({ text: part.text });
    if (part.type === "refusal") parts.push({ text: part.refusal });
    const at = `messages[${message}].content[${k}]`;
    if (part.type === "image_url") parts.push({ media: media.addUrl(...urlOf(part.image_url, `${at}.image_url`)) });
    if (part.type === "audio_url")
      parts.push({ media: media.addUrl(...urlOf(part.audio_url, `${at}.audio_url`), "audio") });
    if (part.type === "input_audio") {
      parts.push({ media: media.addAudio(part.input_audio.data, `${at}.input_audio.data`) });
    }
    if (part.type === "video_url") {
      parts.push({ media: media.addUrl(...urlOf(part.video_url, `${at}.video_url`), "video") });
    }
  }
  return contentOf(parts, "\n");
}

function urlOf(given: string | { readonly url: string }, field: string): [url: string, param: string] {
  return typeof given === "string" ? [given, field] : [given.url, `${field}.url`];
}

/** Returns the files in the messages. Throws invalid_value if the content of a file cannot be decoded. */
export function inputFiles(messages: WireMessages): readonly InputFile[] {
  if (typeof messages === "string") return [];
  return messages.flatMap(({ content }, i) =>
    (typeof content === "string" ? [] : (content ?? [])).flatMap((part, k) =>
      part.type === "file" ? [inputFile(part.file, i, `messages.${i}.content.${k}.file.file_data`)] : [],
    ),
  );
}
