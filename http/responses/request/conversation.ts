// Conversation of a response request: converts input items to ChatMessages. Consecutive reasoning, text and tool calls of the
// assistant become one message.
import type { EarlierCalls, InputFile } from "../../../actors/api/agent/agents.ts";
import type { ChatMessage, RequestMedia, ToolCall } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { inputFile } from "../../shared/agent/file-part.ts";
import { type ContentPart, contentOf, MediaCollector } from "../../shared/fields/media-part.ts";
import { resultsInCallOrder } from "../../shared/fields/tools/result-order.ts";
import { sessionOfContainer } from "../../shared/fields/tools/tool-fields.ts";
import { callOfItem, containerOf, type EarlierCall, isServerItem, shellResult } from "../server-tools/input-items.ts";
import { summaryIn } from "./compaction.ts";
import type { InputItem } from "./input-items.ts";
import { modelName } from "./tools.ts";

type MessageItem = Extract<InputItem, { readonly role: unknown }>;
type CallOutput = Extract<InputItem, { readonly type: "function_call_output" }>;
type Content = MessageItem["content"] | CallOutput["output"];

/** Conversation as chat messages, with the files and earlier server calls that the agent loop needs. */
export interface Conversation {
  readonly messages: readonly ChatMessage[];
  /** Files in the user's messages. */
  readonly files: readonly InputFile[];
  readonly earlierCalls: EarlierCalls;
  /** Images, videos and audio in the messages; absent if there are none. */
  readonly media?: readonly RequestMedia[];
}

/** Returns the instructions and the items as a conversation. Throws invalid_value for an unusable file. */
export function conversation(instructions: string | null, items: readonly InputItem[]): Conversation {
  const messages = new MessageList();
  const files: InputFile[] = [];
  const media = new MediaCollector();
  const ids: string[] = [];
  let container: string | null = null;
  const answered = new Set(items.map((item) => (item.type === "function_call_output" ? item.call_id : undefined)));
  if (instructions) messages.add("system", instructions);
  for (const [at, item] of items.entries()) {
    if (isServerItem(item)) {
      const call = callOfItem(item, at);
      if (call !== null) {
        messages.serverCall(call);
        ids.push(call.id);
      } else if (item.type === "shell_call_output") messages.serverResult(item.call_id, shellResult(item));
      container = containerOf(item) ?? container;
      continue;
    }
    switch (item.type) {
      case "function_call":
        // A truncated or invalid call becomes assistant text, unless the input contains a result for it.
        if (item.status === "incomplete" && !answered.has(item.call_id)) messages.mumble(item.arguments);
        else messages.call({ id: item.call_id, name: calledName(item), arguments: item.arguments });
        break;
      case "function_call_output":
        messages.result(item.call_id, contentParts(item.output, media, `input[${at}].output`));
        break;
      case "reasoning":
        messages.think(thoughtOf(item));
        break;
      case "compaction":
        messages.add("system", `Summary of the conversation so far:\n${summaryIn(item.encrypted_content) ?? ""}`);
        break;
      default:
        if (item.role !== "user") checkMedia(item, at);
        if (item.role === "assistant") messages.say(contentParts(item.content, media, "").content);
        // `developer` is the newer name of `system`. It is replaced, because few chat templates know it.
        else {
          const content = contentParts(item.content, media, `input[${at}].content`);
          messages.add(item.role === "developer" ? "system" : item.role, content.content, content.media);
        }
        files.push(...filesOf(item, messages.count - 1, at));
    }
  }
  return {
    messages: resultsInCallOrder(messages.all()),
    files,
    ...(media.all && { media: media.all }),
    earlierCalls: { ids, session: container === null ? null : sessionOfContainer(container) },
  };
}

const mediaTypes: ReadonlySet<string> = new Set(["input_image", "input_video", "input_audio"]);

function checkMedia({ content }: MessageItem, at: number): void {
  if (typeof content === "string" || !content.some(({ type }) => mediaTypes.has(type))) return;
  const param = `input[${at}].content`;
  throw new ServerError("invalid_value", `${param}: images, videos and audio are allowed in user messages only`, {
    param,
  });
}

/** Returns the files of a message. `message`: index of the message in the chat; `at`: index of the item in the input. */
function filesOf({ role, content }: MessageItem, message: number, at: number): readonly InputFile[] {
  if (typeof content === "string") return [];
  return content.flatMap((part, k): readonly InputFile[] => {
    if (part.type !== "input_file") return [];
    const param = `input[${at}].content[${k}]`;
    if (role !== "user") {
      throw new ServerError("invalid_value", `${param}: files are allowed in user messages only`, { param });
    }
    if (typeof part.file_url === "string") return [{ message, url: part.file_url, name: part.filename ?? null }];
    return [inputFile(part, message, `${param}.file_data`)];
  });
}

/**
 * Returns the same as `conversation`, for a complete conversation. Throws invalid_value if it is empty, or has a result without
 * a call.
 */
export function wholeConversation(instructions: string | null, items: readonly InputItem[]): Conversation {
  if (items.length === 0) {
    throw new ServerError("invalid_value", "input: expected at least one item, got none", { param: "input" });
  }
  const stray = strayResult(items);
  if (stray === null) return conversation(instructions, items);
  const text = `input: expected a function_call of call_id ${JSON.stringify(stray.call_id)} before its function_call_output`;
  throw new ServerError("invalid_value", text, { param: "input" });
}

/** Returns the first tool result that has no call before it; null if there is none. */
function strayResult(items: readonly InputItem[]): CallOutput | null {
  const calls = new Set<string>();
  for (const item of items) {
    if (item.type === "function_call") calls.add(item.call_id);
    else if (item.type === "function_call_output" && !calls.has(item.call_id)) return item;
  }
  return null;
}

interface AssistantMessage {
  reasoning: string;
  content: string | null;
  readonly calls: ToolCall[];
  /** Tool round of the calls that the server ran; null if the server ran none. */
  round: number | null;
  /** Results of the calls that the server ran. They become messages after this message. */
  readonly results: { readonly id: string; readonly content: string }[];
  /** Whether the content was truncated. If true, the next text continues it. */
  isCutOff: boolean;
}

class MessageList {
  readonly #messages: ChatMessage[] = [];
  /** Assistant message in progress; null if there is none. */
  #assistant: AssistantMessage | null = null;

  /** Number of complete messages. */
  get count(): number {
    return this.#messages.length;
  }

  all(): readonly ChatMessage[] {
    this.#endAssistant();
    return this.#messages;
  }

  add(role: string, content: string, media?: ChatMessage["media"]): void {
    this.#endAssistant();
    const last = this.#messages.at(-1);
    // Instructions and developer messages are merged, because many templates allow only one system message, at the start.
    if (role === "system" && this.#messages.length === 1 && last?.role === "system") {
      this.#messages[0] = { role, content: `${last.content}\n\n${content}` };
    } else this.#messages.push({ role, content, ...(media && { media }) });
  }

  result(toolCallId: string, content: Pick<ChatMessage, "content" | "media">): void {
    this.#endAssistant();
    this.#messages.push({ role: "tool", ...content, toolCallId });
  }

  /** Adds a call that the server ran. Calls of one tool round belong to one message, which is followed by their results. */
  serverCall({ round, id, name, arguments: args, result }: EarlierCall): void {
    const message = this.#assistant;
    const isOfRound = message !== null && (message.round === null || message.round === round);
    const open = isOfRound ? message : this.#begin();
    open.round = round;
    open.calls.push({ id, name, arguments: args });
    if (result !== null) open.results.push({ id, content: result });
  }

  /** Adds the result of a call that the server ran. */
  serverResult(id: string, content: string): void {
    if (this.#assistant?.calls.some((call) => call.id === id)) this.#assistant.results.push({ id, content });
    else this.result(id, { content });
  }

  think(thought: string): void {
    this.#unsaid().reasoning += thought;
  }

  say(content: string): void {
    const message = this.#unsaid();
    message.content = (message.content ?? "") + content;
    message.isCutOff = false;
  }

  /** Appends the text of a truncated call to the current assistant message, or to a new one if the current one has calls. */
  mumble(text: string): void {
    const message = this.#assistant?.calls.length === 0 ? this.#assistant : this.#begin();
    message.content = (message.content ?? "") + text;
    message.isCutOff = true;
  }

  call(call: ToolCall): void {
    (this.#assistant ?? this.#begin()).calls.push(call);
  }

  /**
   * Returns the assistant message to which reasoning or text is added. It is a new message if the current one already has
   * complete text or calls, because reasoning and text must precede calls in a message.
   */
  #unsaid(): AssistantMessage {
    const message = this.#assistant;
    const isSaid = message !== null && message.content !== null && !message.isCutOff;
    return message === null || isSaid || message.calls.length > 0 ? this.#begin() : message;
  }

  #begin(): AssistantMessage {
    this.#endAssistant();
    this.#assistant = { reasoning: "", content: null, calls: [], round: null, results: [], isCutOff: false };
    return this.#assistant;
  }

  #endAssistant(): void {
    if (this.#assistant === null) return;
    const { reasoning, content, calls, results } = this.#assistant;
    this.#assistant = null;
    // Dropped are messages that have only reasoning, and empty ones: a placeholder for the output, which follows it in a later turn.
    const isEmpty = content === "" && reasoning === "" && this.#messages.length > 0;
    if ((content === null || isEmpty) && calls.length === 0) return;
    this.#messages.push({
      role: "assistant",
      content: content ?? "",
      ...(reasoning === "" ? {} : { reasoning }),
      ...(calls.length === 0 ? {} : { toolCalls: calls }),
    });
    for (const call of calls) {
      const result = results.find(({ id }) => id === call.id);
      if (result !== undefined) this.#messages.push({ role: "tool", content: result.content, toolCallId: call.id });
    }
  }
}

function calledName({ name, namespace }: Extract<InputItem, { readonly type: "function_call" }>): string {
  return modelName({ name, namespace: namespace ?? null });
}

/**
 * Returns the text, images, videos and audio of a message's content. Refusals are omitted, because the server wrote them, not
 * the model.
 */
function contentParts(content: Content, media: MediaCollector, at: string): Pick<ChatMessage, "content" | "media"> {
  if (typeof content === "string") return { content };
  const parts: ContentPart[] = [];
  for (const [k, part] of content.entries()) {
    if (part.type === "refusal" || part.type === "input_file") continue;
    if (part.type === "input_audio") {
      parts.push({ media: media.addAudio(part.input_audio.data, `${at}[${k}].input_audio.data`) });
      continue;
    }
    if (part.type !== "input_image" && part.type !== "input_video") {
      parts.push({ text: part.text });
      continue;
    }
    const [kind, url] =
      part.type === "input_image" ? ["image" as const, part.image_url] : ["video" as const, part.video_url];
    const key =
      typeof part.file_id === "string"
        ? media.addFile(part.file_id, `${at}[${k}].file_id`, kind)
        : media.addUrl(url ?? "", `${at}[${k}].${kind}_url`, kind);
    parts.push({ media: key });
  }
  return contentOf(parts, "\n");
}

function thoughtOf(item: Extract<InputItem, { readonly type: "reasoning" }>): string {
  const content = item.content ?? [];
  return (content.length > 0 ? content : (item.summary ?? [])).map((part) => part.text).join("\n");
}
