// Conversation of a response request: translates input items to ChatMessages. Consecutive reasoning, text and calls of the
// assistant become one message.
import type { ChatMessage, ToolCall } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { summaryIn } from "./compaction.ts";
import type { InputItem } from "./input-items.ts";
import { modelName } from "./tools.ts";

type MessageItem = Extract<InputItem, { readonly role: unknown }>;
type CallOutput = Extract<InputItem, { readonly type: "function_call_output" }>;
type Content = MessageItem["content"];

/** Returns the messages: the instructions first, then the items. */
export function conversation(instructions: string | null, items: readonly InputItem[]): readonly ChatMessage[] {
  const messages = new MessageList();
  const answered = new Set(items.map((item) => (item.type === "function_call_output" ? item.call_id : undefined)));
  if (instructions) messages.add("system", instructions);
  for (const item of items) {
    switch (item.type) {
      case "function_call":
        // A truncated or invalid call becomes text of the assistant, unless the client has sent a result for it.
        if (item.status === "incomplete" && !answered.has(item.call_id)) messages.mumble(item.arguments);
        else messages.call({ id: item.call_id, name: calledName(item), arguments: item.arguments });
        break;
      case "function_call_output":
        messages.result(item.call_id, text(item.output));
        break;
      case "reasoning":
        messages.think(thoughtOf(item));
        break;
      case "compaction":
        messages.add("system", `Summary of the conversation so far:\n${summaryIn(item.encrypted_content) ?? ""}`);
        break;
      default:
        if (item.role === "assistant") messages.say(text(item.content));
        // `developer` is the newer name of `system`. It is replaced, because few chat templates know it.
        else messages.add(item.role === "developer" ? "system" : item.role, text(item.content));
    }
  }
  return messages.all();
}

/** Like `conversation`, for a complete conversation. Throws invalid_value if it is empty or has a result without a call. */
export function wholeConversation(instructions: string | null, items: readonly InputItem[]): readonly ChatMessage[] {
  if (items.length === 0) {
    throw new ServerError("invalid_value", "input: expected at least one item, got none", { param: "input" });
  }
  const stray = strayResult(items);
  if (stray === null) return conversation(instructions, items);
  const text = `input: expected a function_call of call_id ${JSON.stringify(stray.call_id)} before its function_call_output`;
  throw new ServerError("invalid_value", text, { param: "input" });
}

/** Returns the first tool result without an earlier call; null if there is none. */
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
  /** Whether the content was truncated. If true, the next text is appended to it. */
  isCutOff: boolean;
}

class MessageList {
  readonly #messages: ChatMessage[] = [];
  /** Assistant message in progress; null: none. */
  #assistant: AssistantMessage | null = null;

  all(): readonly ChatMessage[] {
    this.#endAssistant();
    return this.#messages;
  }

  add(role: string, content: string): void {
    this.#endAssistant();
    const last = this.#messages.at(-1);
    // Instructions and developer messages are merged, because many templates allow only one system message, at the start.
    if (role === "system" && this.#messages.length === 1 && last?.role === "system") {
      this.#messages[0] = { role, content: `${last.content}\n\n${content}` };
    } else this.#messages.push({ role, content });
  }

  result(toolCallId: string, content: string): void {
    this.#endAssistant();
    this.#messages.push({ role: "tool", content, toolCallId });
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
   * Returns the message to which reasoning or text is added. This is a new message if the current assistant message already has
   * complete text, or has calls, because reasoning and text precede calls in a message.
   */
  #unsaid(): AssistantMessage {
    const message = this.#assistant;
    const isSaid = message !== null && message.content !== null && !message.isCutOff;
    return message === null || isSaid || message.calls.length > 0 ? this.#begin() : message;
  }

  #begin(): AssistantMessage {
    this.#endAssistant();
    this.#assistant = { reasoning: "", content: null, calls: [], isCutOff: false };
    return this.#assistant;
  }

  #endAssistant(): void {
    if (this.#assistant === null) return;
    const { reasoning, content, calls } = this.#assistant;
    this.#assistant = null;
    // A message that has only reasoning is dropped.
    if (content === null && calls.length === 0) return;
    this.#messages.push({
      role: "assistant",
      content: content ?? "",
      ...(reasoning === "" ? {} : { reasoning }),
      ...(calls.length === 0 ? {} : { toolCalls: calls }),
    });
  }
}

function calledName({ name, namespace }: Extract<InputItem, { readonly type: "function_call" }>): string {
  return modelName({ name, namespace: namespace ?? null });
}

function text(content: Content): string {
  if (typeof content === "string") return content;
  // A refusal is omitted, because the server wrote it, not the model.
  return content.flatMap((part) => (part.type === "refusal" ? [] : [part.text])).join("\n");
}

function thoughtOf(item: Extract<InputItem, { readonly type: "reasoning" }>): string {
  const content = item.content ?? [];
  return (content.length > 0 ? content : (item.summary ?? [])).map((part) => part.text).join("\n");
}
