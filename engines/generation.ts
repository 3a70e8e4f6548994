// Generation request and events: requests in a form that is independent of the wire protocol, and the closed union of
// response events.
import type { ErrorRecord } from "../runtime/errors.ts";
import type { LogprobRecords } from "./logprobs.ts";

export interface ChatMessage {
  readonly role: string;
  /** Plain text; the protocol layer has already joined its text parts. */
  readonly content: string;
  readonly name?: string;
  /** Assistant messages: the reasoning before the content. */
  readonly reasoning?: string;
  /** Assistant messages: the tool calls, in order. */
  readonly toolCalls?: readonly ToolCall[];
  /** Messages of role `tool`: id of the tool call whose result this is. */
  readonly toolCallId?: string;
  /** Images, videos and audio within the content, in order; absent: none. */
  readonly media?: readonly MessageMedia[];
}

/** Image, video or audio in a message. `at`: index in the content. `key`: key among the request's media. */
export interface MessageMedia {
  readonly at: number;
  readonly key: string;
}

/** Image, video or audio of a request. `key`: equal for equal sources. */
export interface RequestMedia {
  readonly key: string;
  /**
   * Absent: an image. Before the prompt is prepared, a video is replaced by its frames, with the keys of frameKey().
   */
  readonly kind?: "video" | "frame" | "audio";
  /** Time of a frame in its video, in seconds; absent for other media. */
  readonly seconds?: number;
  readonly source: MediaSource;
  /** Name of the request's field, for error messages. */
  readonly param: string;
}

/** Encoded file (PNG, MP4, WAV and others), or where it can be found: a URL, or the id of a stored file. */
export type MediaSource =
  /** `digest`: SHA-256 of the bytes, in hexadecimal digits. */
  | { readonly kind: "data"; readonly bytes: Uint8Array; readonly digest: string }
  | { readonly kind: "url"; readonly url: string }
  | { readonly kind: "file"; readonly id: string };

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
  /** true: a grammar forces the arguments of every call to match the schema. */
  readonly strict: boolean;
}

/** Tools of a request. If the tool choice allows only some of the tools, only these are listed. */
export interface ToolUse {
  /** The tools; at least one. */
  readonly specs: readonly ToolSpec[];
  /** true: the model must call a tool. */
  readonly required: boolean;
  /** true: the model may make several calls in one response. */
  readonly parallel: boolean;
}

/** Settings that determine how the next token is chosen. The neutral value of a setting disables its sampling step. */
export interface Sampling {
  /** 0 = greedy. */
  readonly temperature: number;
  /** Keep the k likeliest tokens; 0 = all. */
  readonly topK: number;
  /** Keep the smallest set of the likeliest tokens whose total probability reaches this value; 1 = all. */
  readonly topP: number;
  /** Drop tokens with less than this fraction of the likeliest token's probability; 0 = none. */
  readonly minP: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /** Divides positive and multiplies negative logits of seen tokens; 1 = off. */
  readonly repetitionPenalty: number;
  readonly dry: Dry | null;
  /** Values added to the logits, by token id. */
  readonly logitBias: readonly (readonly [token: number, bias: number])[];
  /** Seed of the random numbers; choice i uses seed + i. null: random. */
  readonly seed: number | null;
  /** Number of alternatives reported for each token (0..20), in addition to the token itself; null: no logprobs. */
  readonly topLogprobs: number | null;
}

/** Sampling settings that every model has default values for. */
export type DefaultedField =
  | "temperature"
  | "topK"
  | "topP"
  | "minP"
  | "repetitionPenalty"
  | "presencePenalty"
  | "frequencyPenalty";

/** Sampling settings of a request; null = the default of the model (engines/sampling-defaults.ts). */
export type RequestedSampling = Omit<Sampling, DefaultedField> & {
  readonly [F in DefaultedField]: Sampling[F] | null;
};

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

/** DRY ("don't repeat yourself") sampling: penalises a token that would extend a repeated run of tokens. */
export interface Dry {
  readonly multiplier: number;
  readonly base: number;
  readonly allowedLength: number;
  /** Texts at which a repeated run of tokens ends. */
  readonly sequenceBreakers: readonly string[];
}

/**
 * Constraint on the whole output. Grammar texts are in the client's notation: engines/text/constraints translates them
 * for the grammar engine. `field` is the request field that contains a schema, for error messages.
 */
export type OutputGrammar =
  | { readonly kind: "json" }
  | { readonly kind: "json_schema"; readonly schema: unknown; readonly field: string }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "lark"; readonly grammar: string }
  | { readonly kind: "gbnf"; readonly grammar: string }
  | { readonly kind: "llguidance"; readonly grammar: string };

/** LoRA adapter chosen by a request: by its name (`alias`), or by its revision (`generation`). */
export type AdapterSelector = { readonly alias: string } | { readonly generation: string };

export type Prompt =
  | {
      readonly kind: "chat";
      readonly messages: readonly ChatMessage[];
      readonly templateArguments: TemplateArguments;
      /** true: the output continues the last message, which is the assistant's. */
      readonly continuesLast?: boolean;
    }
  /**
   * `suffix`: text after the gap; the output fills the gap between `text` and `suffix`. Absent: the output continues
   * `text`.
   */
  | { readonly kind: "text"; readonly text: string; readonly suffix?: string }
  | { readonly kind: "tokens"; readonly tokens: Int32Array };

/**
 * Large part of a request, up to tens of megabytes: prompt, grammar and tools. It is parsed only when the request is
 * prepared.
 */
export interface RequestContent {
  readonly prompt: Prompt;
  readonly grammar: OutputGrammar | null;
  readonly tools: ToolUse | null;
}

/** A RequestContent in serialised form. Only a text worker parses it; other threads forward the bytes. */
export interface SealedContent {
  readonly kind: "sealed";
  readonly isChat: boolean;
  readonly bytes: Uint8Array;
  /** Digest of the content's grammar and tools; null: the content has neither. */
  readonly demand: string | null;
}

/** Changes to the chat of a request. A text worker applies them when it parses the request's content. */
export interface PromptChanges {
  /**
   * Messages to replace, in ascending order: `remove` messages from index `at` of the request's chat. If `at` is the
   * number of messages, the new messages are added at the end.
   */
  readonly splices: readonly {
    readonly at: number;
    readonly remove: number;
    readonly messages: readonly ChatMessage[];
  }[];
  /** Texts to add to the end of messages. `at`: index in the request's chat; null: the last user message. */
  readonly notes: readonly { readonly at: number | null; readonly text: string }[];
  /** true: no tool call is required, even if the request requires one. */
  readonly callsAreOptional: boolean;
}

/** A request whose content has been parsed. */
export type OpenRequest = GenerateRequest & RequestContent;

export interface GenerateRequest {
  /** Model id as configured; resolved by the inference service. */
  readonly model: string;
  /** Adapter; null: the base model. */
  readonly adapter: AdapterSelector | null;
  /** Client identity for fair queueing. Never the API key itself. */
  readonly client: string;
  readonly prompt: Prompt | SealedContent;
  readonly sampling: RequestedSampling;
  /** Number of choices returned. */
  readonly choices: number;
  /** Number of choices generated, at least `choices`. The `choices` with the highest mean logprob are returned. */
  readonly candidates: number;
  /** Lower values are served first; default 0. */
  readonly priority: number;
  /** Grammar; null: none, or the content is not yet parsed (SealedContent). */
  readonly grammar: OutputGrammar | null;
  /** Tools, for chats only; null: none, or the content is not yet parsed (SealedContent). */
  readonly tools: ToolUse | null;
  /** Number of alternatives reported for each prompt token (0..20); null: no logprobs of the prompt. */
  readonly promptLogprobs: number | null;
  /** Changes to the chat; absent: none. */
  readonly changes?: PromptChanges;
  /** Images, videos and audio of the chat's messages; absent: none. */
  readonly media?: readonly RequestMedia[];
  /** Maximum number of reasoning tokens, after which the final answer is forced to begin; null: no limit. */
  readonly reasoningBudget: number | null;
  readonly stop: readonly string[];
  /**
   * Maximum number of generated tokens; prompt plus this number must fit in the context. 0: only the prompt is computed. null: the
   * default of the model.
   */
  readonly maxTokens: number | null;
  /**
   * Minimum number of output tokens. Before this number is reached, end tokens and stop strings do not end a choice. A
   * choice still ends earlier if its grammar allows no further token.
   */
  readonly minTokens: number;
  readonly ignoreEos: boolean;
  /** Tokens that end the output like an end-of-generation token, also if `ignoreEos` is set. */
  readonly stopTokens: readonly number[];
  /** true: if the prompt is too long, only its end is used; false: the request is rejected. */
  readonly truncatePrompt: boolean;
  /** Names of the request's fields in its protocol, for error messages. */
  readonly fields: FieldNames;
  /** Label for the latency metrics of a streamed response; null: the response is not streamed. */
  readonly series: string | null;
  /** Time of arrival, in milliseconds since 1970. */
  readonly receivedAt: number;
}

/** Names of two request fields: the one that contains the prompt, and the one that limits the output. */
export interface FieldNames {
  readonly prompt: string;
  readonly maxTokens: string;
}

/** A request with the defaults of its model applied. */
export interface ResolvedRequest extends GenerateRequest {
  readonly sampling: Sampling;
  /**
   * Maximum number of generated tokens; null: until the context is full. Generation ends earlier if the context is
   * full.
   */
  readonly outputLimit: number | null;
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
  minTokens: 0,
  ignoreEos: false,
  stopTokens: [],
  truncatePrompt: false,
  fields: { prompt: "prompt", maxTokens: "max_tokens" },
  series: null,
  receivedAt: 0,
} satisfies Partial<GenerateRequest>;

/** Extra variables for the chat template. */
export interface TemplateArguments {
  readonly enableThinking?: boolean;
  readonly reasoningEffort?: string;
  /** Further variables by name: JSON values of the client. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

/**
 * Reason for the end of a choice. `tool_calls`: the model ended its output or reached a stop string, after at least
 * one complete call.
 */
export type FinishReason = "stop" | "length" | "tool_calls" | "cancelled";

/** Token counts and times of one request. Times are in seconds. */
export interface Usage {
  readonly promptTokens: number;
  /** Number of prompt tokens whose KV came from the prefix cache. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Number of completion tokens that were reasoning. */
  readonly reasoningTokens: number;
  readonly promptSeconds: number;
  readonly completionSeconds: number;
  readonly totalSeconds: number;
  readonly timeline: Timeline;
}

/** Times of a request's stages, in milliseconds since 1970. */
export interface Timeline {
  /** A text worker began to process the request. */
  readonly startedAt: number;
  /** The prompt was rendered and encoded. From this time on the request waits for the model. */
  readonly queuedAt: number;
  /** The model began to process the prompt. */
  readonly scheduledAt: number;
  readonly firstTokenAt: number;
  readonly endedAt: number;
}

/**
 * Events of a request, in this order: at most one `prompt` event, one `begin` event, the events of its choices, then
 * exactly one `done` or `error` event. An `error` event may come at any time. The events of one choice are (reasoning |
 * text | call)* (refusal)? finish. A call consists of tool_call, tool_arguments*, and then one of tool_call_end,
 * tool_call_failed and tool_call_cut; calls of the same choice do not overlap.
 */
export type GenerateEvent =
  /** The first token was generated. Sent once, before the events of any choice. */
  | {
      readonly type: "begin";
      readonly promptTokens: number;
      readonly cachedTokens: number;
      /** Revision of the request's adapter; absent for the base model. */
      readonly adapterGeneration?: string;
    }
  /**
   * The tokens of the prompt, if their logprobs were requested. Sent once, before all other events. The logprob of the first token is
   * meaningless, because no token precedes it.
   */
  | { readonly type: "prompt"; readonly logprobs: LogprobRecords }
  /** Part of the model's reasoning, which precedes the final answer. */
  | { readonly type: "reasoning"; readonly choice: number; readonly text: string }
  | {
      readonly type: "text";
      readonly choice: number;
      readonly text: string;
      readonly logprobs?: LogprobRecords;
    }
  /** A tool call begins. `call` is its number within the choice, counted from 0. */
  | {
      readonly type: "tool_call";
      readonly choice: number;
      readonly call: number;
      readonly id: string;
      readonly name: string;
    }
  /** A part of a call's arguments, which are JSON text. */
  | { readonly type: "tool_arguments"; readonly choice: number; readonly call: number; readonly text: string }
  /** The arguments are complete and valid JSON. */
  | { readonly type: "tool_call_end"; readonly choice: number; readonly call: number }
  /**
   * The call is not valid, because the model ended it early or wrote no JSON. `text` is the whole text of the call as
   * the model wrote it. If no part of the call has been sent to the client, the response contains `text` instead of the
   * call.
   */
  | { readonly type: "tool_call_failed"; readonly choice: number; readonly call: number; readonly text: string }
  /**
   * The token limit has cut the call: its arguments are the beginning of JSON text. The response contains the partial
   * call, whether it is streamed or not.
   */
  | { readonly type: "tool_call_cut"; readonly choice: number; readonly call: number }
  /** The text of a choice does not satisfy the request's constraint; `reason` explains the violation. */
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
