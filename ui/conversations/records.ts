// Records of conversations as the browser stores them (IndexedDB). The messages of a conversation form a tree: each message
// contains the id of the previous message, and messages with the same parent begin different branches.
import type { Approval, OutputItem, ProducedFile, ToolProgress, Usage } from "../server/wire.ts";

/** Settings of a conversation. null and "" mean the default of the server or the model. */
export interface ChatSettings {
  readonly model: string;
  /** Other models that also answer each message, side by side. */
  readonly others: readonly string[];
  readonly adapter: string;
  readonly system: string;
  readonly temperature: number | null;
  readonly topP: number | null;
  readonly topK: number | null;
  readonly minP: number | null;
  readonly repetitionPenalty: number | null;
  readonly maxTokens: number | null;
  readonly seed: number | null;
  readonly effort: string;
  /** JSON schema of the answer, as text; "" if there is none. */
  readonly schema: string;
  readonly logprobs: boolean;
  /** Names of enabled server tools: code, shell, search, and `mcp:LABEL`. */
  readonly tools: readonly string[];
  readonly skills: readonly string[];
  readonly asksApproval: boolean;
}

export interface Conversation {
  readonly id: string;
  readonly title: string;
  readonly folder: string;
  /** Time of creation in milliseconds since 1970. `updatedAt` has the same unit. */
  readonly createdAt: number;
  readonly updatedAt: number;
  /** Id of the last message in the branch that is shown; null if the conversation is empty. */
  readonly leaf: string | null;
  readonly settings: ChatSettings;
}

export interface AttachedFile {
  /** Id of the file on the server. */
  readonly id: string;
  readonly name: string;
  readonly bytes: number;
}

interface MessageHead {
  readonly id: string;
  readonly conversation: string;
  readonly parent: string | null;
  readonly createdAt: number;
}

export interface UserMessage extends MessageHead {
  readonly role: "user";
  readonly text: string;
  readonly files: readonly AttachedFile[];
}

export type AnswerStatus = "running" | "completed" | "incomplete" | "failed" | "cancelled";

/** Tool event, stored in the order of arrival. */
export type Activity =
  | { readonly kind: "progress"; readonly progress: ToolProgress }
  | { readonly kind: "approval"; readonly approval: Approval }
  | { readonly kind: "file"; readonly file: ProducedFile };

export interface Answer extends MessageHead {
  readonly role: "assistant";
  readonly model: string;
  readonly status: AnswerStatus;
  /** Why the answer is incomplete or has failed; "" otherwise. */
  readonly problem: string;
  /** Output items of the response so far. */
  readonly output: readonly OutputItem[];
  readonly activity: readonly Activity[];
  /** Id of the response on the server; "" until the server has sent it. */
  readonly responseId: string;
  /** Sequence number of the last event included in `output`; -1 if none. */
  readonly sequence: number;
  readonly session: string;
  readonly usage: Usage | null;
  /** State of the answer before it was continued; null if it was not continued. */
  readonly base: AnswerBase | null;
  /**
   * Milliseconds from the request to the first output, and (`lastMs`) to the last output; null if unknown. After a continuation, these and
   * `usage` are those of the continuation.
   */
  readonly firstMs: number | null;
  readonly lastMs: number | null;
  readonly reasoningMs: number | null;
  /** Whether the user has edited the answer's text. */
  readonly isEdited: boolean;
}

export interface AnswerBase {
  readonly output: readonly OutputItem[];
  readonly activity: readonly Activity[];
  /** Time of the continuation in milliseconds since 1970; absent in answers that were stored by older versions. */
  readonly continuedAt?: number;
}

export type Message = UserMessage | Answer;

export const usualSettings: ChatSettings = {
  model: "",
  others: [],
  adapter: "",
  system: "",
  temperature: null,
  topP: null,
  topK: null,
  minP: null,
  repetitionPenalty: null,
  maxTokens: null,
  seed: null,
  effort: "",
  schema: "",
  logprobs: false,
  tools: [],
  skills: [],
  asksApproval: true,
};

/** Returns 128 random bits in hexadecimal. crypto.randomUUID() would require HTTPS. */
export function newId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns the visible text of a message, without reasoning and tools. */
export function textOf(message: Message): string {
  if (message.role === "user") return message.text;
  return message.output
    .flatMap((item) => (item.type === "message" ? (item.content ?? []) : []))
    .map((part) => part.text ?? part.refusal ?? "")
    .join("");
}
