// Sealed content: the prompt, grammar and tools of a request, serialised to bytes that move between threads without a copy.
import { createHash } from "node:crypto";
import { deserialize, serialize } from "node:v8";
import type {
  ChatMessage,
  GenerateRequest,
  PromptChanges,
  RequestContent,
  SealedContent,
} from "../../engines/generation.ts";
import type { Transferable } from "../../runtime/endpoint/endpoint.ts";

export function sealContent({ prompt, grammar, tools }: RequestContent): SealedContent {
  // The bytes are copied to a separate buffer, which can be transferred to another thread.
  const bytes = new Uint8Array(serialize({ prompt, grammar, tools } satisfies RequestContent));
  return { kind: "sealed", isChat: prompt.kind === "chat", bytes, demand: demandOf({ grammar, tools }) };
}

/** Returns a digest of the constraints on the output (grammar, tool calls); null = no constraints. */
export function demandOf({ grammar, tools }: Pick<RequestContent, "grammar" | "tools">): string | null {
  if (grammar === null && tools === null) return null;
  return createHash("sha256")
    .update(JSON.stringify([grammar, tools]))
    .digest("base64");
}

export function openContent({ bytes }: SealedContent): RequestContent {
  return deserialize(bytes) as RequestContent;
}

/** Returns the messages of a chat, sealed or not; empty for a prompt that is not a chat. */
export function messagesIn(prompt: GenerateRequest["prompt"]): readonly ChatMessage[] {
  const content = prompt.kind === "sealed" ? openContent(prompt).prompt : prompt;
  return content.kind === "chat" ? content.messages : [];
}

/** Applies changes to the messages of a request's content. Content without a chat is returned unchanged. */
export function changedContent(
  content: RequestContent,
  { splices, notes, callsAreOptional }: PromptChanges,
): RequestContent {
  const { prompt, tools } = content;
  return {
    ...content,
    prompt:
      prompt.kind === "chat"
        ? { ...prompt, messages: splicedMessages(noted(prompt.messages, notes), splices) }
        : prompt,
    tools: tools !== null && callsAreOptional ? { ...tools, required: false } : tools,
  };
}

/** Returns the messages of a chat with the splices (replacements and insertions of messages) applied. */
export function splicedMessages(
  messages: readonly ChatMessage[],
  splices: PromptChanges["splices"],
): readonly ChatMessage[] {
  const changed: ChatMessage[] = [];
  let at = 0;
  for (const splice of splices) {
    changed.push(...messages.slice(at, splice.at), ...splice.messages);
    at = splice.at + splice.remove;
  }
  changed.push(...messages.slice(at));
  return changed;
}

function noted(messages: readonly ChatMessage[], notes: PromptChanges["notes"]): readonly ChatMessage[] {
  if (notes.length === 0) return messages;
  const changed = [...messages];
  for (const note of notes) {
    const at = note.at ?? messages.findLastIndex(({ role }) => role === "user");
    const message = changed[at];
    if (message !== undefined) changed[at] = { ...message, content: joined(message.content, note.text) };
  }
  return changed;
}

function joined(content: string, text: string): string {
  return content === "" ? text : `${content}\n\n${text}`;
}

/** Returns the buffers to transfer when a request is sent to another thread: its sealed content. */
export function movedWith({ prompt }: Pick<GenerateRequest, "prompt">): Transferable[] {
  return prompt.kind === "sealed" ? [prompt.bytes.buffer as ArrayBuffer] : [];
}
