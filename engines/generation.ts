// Generation request and events: the protocol-neutral form of requests, and the closed union of events that answers
// them. Contains no type of a wire protocol.
import type { ErrorRecord } from "../runtime/errors.ts";
import type { LogprobRecords } from "./logprobs.ts";

export interface ChatMessage {
  readonly role: string;
  /** Plain text; the protocol has joined its text parts. */
  readonly content: string;
  readonly name?: string;
  /** Assistant messages: the reasoning before the content. */
  readonly reasoning?: string;
  /** Assistant messages: the calls, in order. */
  readonly toolCalls?: readonly ToolCall[];
  /** Messages of role `tool`: id of the call that it answers. */
  readonly toolCallId?: string;
}

/** A tool call in a conversation. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text as the model wrote it. */
  readonly arguments: string;
}

/** A tool that the model may call and the client runs. */
export interface ToolSpec {
  readonly name: string;
  readonly description: string | null;
  /** JSON schema of the arguments object; null: any object. */
  readonly parameters: unknown;
  /** The arguments of every call must match the schema: a grammar enforces it. */
  readonly strict: boolean;
}

/** Tools of a request. A tool choice that names some of them lists only those. */
export interface ToolUse {
  /** At least one. */
  readonly specs: readonly ToolSpec[];
  /** The answer must be a call. */
  readonly required: boolean;
  /** An answer may hold several calls. */
  readonly parallel: boolean;
}

/** How the next token is chosen. Neutral values switch a stage off. */
export interface Sampling {
  /** 0 = greedy. */
  readonly temperature: number;
  /** Keep the k likeliest tokens; 0 = all. */
  readonly topK: number;
  /** Keep the smallest set of likeliest tokens whose probability reaches this; 1 = all. */
  readonly topP: number;
  /** Drop tokens with less than this fraction of the likeliest token's probability; 0 = none. */
  readonly minP: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /** Divides positive and multiplies negative logits of seen tokens; 1 = off. */
  readonly repetitionPenalty: number;
  readonly dry: Dry | null;
  /** Added to a token's logit, by token id. */
  readonly logitBias: readonly (readonly [token: number, bias: number])[];
  /** Choice i of n uses seed + i; null: random. */
  readonly seed: number | null;
  /** Number of alternatives reported beside each token (0..20); null: no logprobs. */
  readonly topLogprobs: number | null;
}

/** Greedy sampling: always the likeliest token. */
export const greedySampling: Sampling = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  presencePenalty: 0,
  frequencyPenalty: 0,
  repetitionPenalty: 1,
  dry: null,
  logitBias: [],
  seed: 0,
  topLogprobs: null,
};

/** "Don't repeat yourself": penalises a token that would extend a repeated run of tokens. */
export interface Dry {
  readonly multiplier: number;
  readonly base: number;
  readonly allowedLength: number;
  /** Texts that end a run. */
  readonly sequenceBreakers: readonly string[];
}

/**
 * Constraint on the whole output. Grammar texts are the client's: engines/text/constraints translates them before a
 * grammar engine sees them. `field` is the request field of a schema, for error messages.
 */
export type OutputGrammar =
  | { readonly kind: "json" }
  | { readonly kind: "json_schema"; readonly schema: unknown; readonly field: string }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "lark"; readonly grammar: string }
  | { readonly kind: "llguidance"; readonly grammar: string };

/** The LoRA adapter of a request: by name, or by revision. */
export type AdapterSelector = { readonly alias: string } | { readonly generation: string };

export type Prompt =
  | {
      readonly kind: "chat";
      readonly messages: readonly ChatMessage[];
      readonly templateArguments: TemplateArguments;
    }
  | { readonly kind: "text"; readonly text: string };

/** The part of a request that only request preparation reads. May be tens of megabytes. */
export interface RequestContent {
  readonly prompt: Prompt;
  readonly grammar: OutputGrammar | null;
  readonly tools: ToolUse | null;
}

/** A RequestContent in serialised form. Threads transfer it unread; a text worker opens it. */
export interface SealedContent {
  readonly kind: "sealed";
  readonly isChat: boolean;
  readonly bytes: Uint8Array;
  /** Digest of its grammar and tools; null: it has none. */
  readonly demand: string | null;
}

/** A request with opened content. */
export type OpenRequest = GenerateRequest & RequestContent;

export interface GenerateRequest {
  /** Model id as configured; resolved by the inference service. */
  readonly model: string;
  /** null: the base model. */
  readonly adapter: AdapterSelector | null;
  /** Client identity for fair queueing. Never the API key itself. */
  readonly client: string;
  readonly prompt: Prompt | SealedContent;
  readonly sampling: Sampling;
  /** Number of choices returned. */
  readonly choices: number;
  /** Number of choices generated, >= choices; the likeliest `choices` by mean logprob are returned. */
  readonly candidates: number;
  /** Lower values are served first; default 0. */
  readonly priority: number;
  /** null: none, or the content is sealed. */
  readonly grammar: OutputGrammar | null;
  /** null: no tools, or the content is sealed. Chats only. */
  readonly tools: ToolUse | null;
  /** Alternatives reported beside each prompt token (0..20); null: no logprobs of the prompt. */
  readonly promptLogprobs: number | null;
  /** Most reasoning tokens, after which the answer is forced to begin; null: no bound. */
  readonly reasoningBudget: number | null;
  readonly stop: readonly string[];
  /** null: until the context is full. */
  readonly maxTokens: number | null;
  readonly ignoreEos: boolean;
  /** Keep the end of a prompt that is too long, instead of refusing it. */
  readonly truncatePrompt: boolean;
  /** Streamed answers: label of their latency metrics; null: not streamed. */
  readonly series: string | null;
  /** Time of arrival, in milliseconds since 1970. */
  readonly receivedAt: number;
}

/** Defaults of a request's optional fields. */
export const requestDefaults = {
  adapter: null,
  choices: 1,
  candidates: 1,
  priority: 0,
  grammar: null,
  tools: null,
  promptLogprobs: null,
  reasoningBudget: null,
  stop: [],
  maxTokens: null,
  ignoreEos: false,
  truncatePrompt: false,
  series: null,
  receivedAt: 0,
} satisfies Partial<GenerateRequest>;

/** Extra variables for the chat template. */
export interface TemplateArguments {
  readonly enableThinking?: boolean;
  readonly reasoningEffort?: string;
}

/** `tool_calls`: ended by itself or by a stop string, after at least one complete call. */
export type FinishReason = "stop" | "length" | "tool_calls" | "cancelled";

/** Token counts and times of one request. Times in seconds. */
export interface Usage {
  readonly promptTokens: number;
  /** Prompt tokens with KV from the prefix cache. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Completion tokens spent on reasoning. */
  readonly reasoningTokens: number;
  readonly promptSeconds: number;
  readonly completionSeconds: number;
  readonly totalSeconds: number;
  readonly timeline: Timeline;
}

/** Milestones of a request, in milliseconds since 1970. */
export interface Timeline {
  /** A text worker has started the request. */
  readonly startedAt: number;
  /** Its prompt is rendered and encoded; from here on it waits for the model. */
  readonly queuedAt: number;
  /** The model has started its prompt. */
  readonly scheduledAt: number;
  readonly firstTokenAt: number;
  readonly endedAt: number;
}

/**
 * Events of a request, in order: at most one prompt, begin, the events of its choices, then exactly one of done |
 * error; error may come at any time. The events of a choice are (reasoning | text | call)* (refusal)? finish, where a
 * call is tool_call, tool_arguments*, and either tool_call_end or tool_call_failed; calls of a choice do not overlap.
 */
export type GenerateEvent =
  /** The first token exists. Sent once, before the events of any choice. */
  | {
      readonly type: "begin";
      readonly promptTokens: number;
      readonly cachedTokens: number;
      /** Revision of the request's adapter; absent for the base model. */
      readonly adapterGeneration?: string;
    }
  /**
   * The prompt's own tokens, if their logprobs were requested. The first token has no predecessor: its logprob is
   * meaningless.
   */
  | { readonly type: "prompt"; readonly logprobs: LogprobRecords }
  /** The model's reasoning before its answer. */
  | { readonly type: "reasoning"; readonly choice: number; readonly text: string }
  | {
      readonly type: "text";
      readonly choice: number;
      readonly text: string;
      readonly logprobs?: LogprobRecords;
    }
  /** A call begins, number `call` of its choice, counted from 0. */
  | {
      readonly type: "tool_call";
      readonly choice: number;
      readonly call: number;
      readonly id: string;
      readonly name: string;
    }
  /** A piece of a call's arguments: JSON text. */
  | { readonly type: "tool_arguments"; readonly choice: number; readonly call: number; readonly text: string }
  /** The arguments are complete and valid JSON. */
  | { readonly type: "tool_call_end"; readonly choice: number; readonly call: number }
  /**
   * Not a valid call: truncated, or not JSON. `text` is everything the model wrote of it. A fold that can still
   * withdraw the call outputs it as text; otherwise the arguments have already been sent.
   */
  | { readonly type: "tool_call_failed"; readonly choice: number; readonly call: number; readonly text: string }
  /** The text of a choice does not satisfy the request's constraint, for this reason. */
  | { readonly type: "refusal"; readonly choice: number; readonly reason: string }
  | {
      readonly type: "finish";
      readonly choice: number;
      readonly reason: FinishReason;
      /** The stop string that ended the choice, if any. */
      readonly stopString: string | null;
    }
  | { readonly type: "done"; readonly usage: Usage }
  | { readonly type: "error"; readonly error: ErrorRecord };
