// Messages of a chat request: their translation to ChatMessages, and contradictions among them.
import type { ChatMessage, ToolCall } from "../../engines/generation.ts";
import type { WireMessage, WireMessages } from "./messages.ts";

type Assistant = Extract<WireMessage, { readonly role: "assistant" }>;

export function conversation(messages: WireMessages): readonly ChatMessage[] {
  return typeof messages === "string" ? [{ role: "user", content: messages }] : messages.map(chatMessage);
}

/** Returns the first contradiction, with its path in the messages; null if there is none. */
export function contradiction(
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

function chatMessage(message: WireMessage): ChatMessage {
  const { name } = message;
  return {
    // `developer` is the newer name of `system`. It is replaced, because few chat templates know it.
    role: message.role === "developer" ? "system" : message.role,
    content: text(message.content),
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

function text(content: WireMessage["content"]): string {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => (part.type === "text" ? part.text : part.refusal)).join("\n");
}
