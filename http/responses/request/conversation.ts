// Owns what the items of a response's input mean in our own terms: a conversation, in which an assistant's thinking, words and
// calls that follow each other are one message.
import type { ChatMessage, ToolCall } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { InputItem } from "./input-items.ts";
import { modelName } from "./tools.ts";

type MessageItem = Extract<InputItem, { readonly role: unknown }>;
type CallOutput = Extract<InputItem, { readonly type: "function_call_output" }>;
type Content = MessageItem["content"];

/** The instructions, then what the items say. */
export function conversation(instructions: string | null, items: readonly InputItem[]): readonly ChatMessage[] {
  const messages = new MessageList();
  const answered = new Set(items.map((item) => (item.type === "function_call_output" ? item.call_id : undefined)));
  if (instructions) messages.add("system", instructions);
  for (const item of items) {
    switch (item.type) {
      case "function_call":
        // Cut off, or no JSON: no call, but what the assistant wrote. A client that has answered it all the same took it for one.
        if (item.status === "incomplete" && !answered.has(item.call_id)) messages.mumble(item.arguments);
        else messages.call({ id: item.call_id, name: calledName(item), arguments: item.arguments });
        break;
      case "function_call_output":
        messages.result(item.call_id, text(item.output));
        break;
      case "reasoning":
        messages.think(thoughtOf(item));
        break;
      default:
        if (item.role === "assistant") messages.say(text(item.content));
        // `developer` is this protocol's newer word for `system`; few templates know it.
        else messages.add(item.role === "developer" ? "system" : item.role, text(item.content));
    }
  }
  return messages.all();
}

/** The same of all there is. Throws invalid_value where there is nothing to answer, or a result of a call that nobody made. */
export function wholeConversation(instructions: string | null, items: readonly InputItem[]): readonly ChatMessage[] {
  if (items.length === 0) {
    throw new ServerError("invalid_value", "input: expected something to answer", { param: "input" });
  }
  const stray = strayResult(items);
  if (stray === null) return conversation(instructions, items);
  const text = `input: expected a function_call of call_id ${JSON.stringify(stray.call_id)} before its function_call_output`;
  throw new ServerError("invalid_value", text, { param: "input" });
}

/** The first result of a call that nobody made; null where there is none. */
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
  /** What it says next belongs to what it has said. */
  isCutOff: boolean;
}

class MessageList {
  readonly #messages: ChatMessage[] = [];
  /** The assistant's message that goes on. */
  #assistant: AssistantMessage | null = null;

  all(): readonly ChatMessage[] {
    this.#endAssistant();
    return this.#messages;
  }

  add(role: string, content: string): void {
    this.#endAssistant();
    const last = this.#messages.at(-1);
    // Instructions and what developers say come as several; many templates take one system message, at the start.
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

  /** Goes on with what the assistant says, in the message where it says it. */
  mumble(text: string): void {
    const message = this.#assistant?.calls.length === 0 ? this.#assistant : this.#begin();
    message.content = (message.content ?? "") + text;
    message.isCutOff = true;
  }

  call(call: ToolCall): void {
    (this.#assistant ?? this.#begin()).calls.push(call);
  }

  /** The assistant's message that goes on, if it has said and called nothing yet: words and thinking come before calls. */
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
    // What was thought and came to nothing is not said again.
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
  // Why something was no answer is said by this server, or another: the model never did.
  return content.flatMap((part) => (part.type === "refusal" ? [] : [part.text])).join("\n");
}

function thoughtOf(item: Extract<InputItem, { readonly type: "reasoning" }>): string {
  const content = item.content ?? [];
  return (content.length > 0 ? content : (item.summary ?? [])).map((part) => part.text).join("\n");
}
