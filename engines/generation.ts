// Owns the neutral vocabulary between the wire protocols and the engines: what a request asks and the one closed union
// of events that answers it. No protocol's own type appears here.
import type { ErrorRecord } from "../runtime/errors.ts";
import type { LogprobRecords } from "./logprobs.ts";

export interface ChatMessage {
  readonly role: string;
  /** Plain text; text parts are joined by the protocol that had them. */
  readonly content: string;
  readonly name?: string;
  /** What an assistant's message thought before it said its content. */
  readonly reasoning?: string;
  /** The calls of an assistant's message, in their order. */
  readonly toolCalls?: readonly ToolCall[];
  /** Of a message of role `tool`: the call it answers. */
  readonly toolCallId?: string;
}

/** A call of a tool as a conversation keeps it. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text, as the model wrote it. */
  readonly arguments: string;
}

/** A tool that the model may call and the client runs. */
export interface ToolSpec {
  readonly name: string;
  readonly description: string | null;
  /** JSON schema of the arguments, which are an object; null: any object. */
  readonly parameters: unknown;
  /** The arguments of every call must match the schema: they are generated under its grammar. */
  readonly strict: boolean;
}

/** The tools of a request. A choice of some of them is made by naming only those. */
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
  /** Keep the k likeliest; 0 = all. */
  readonly topK: number;
  /** Keep the smallest set whose probability reaches this; 1 = all. */
  readonly topP: number;
  /** Drop tokens less likely than this times the likeliest; 0 = none. */
  readonly minP: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /** Divides positive and multiplies negative logits of seen tokens; 1 = off. */
  readonly repetitionPenalty: number;
  readonly dry: Dry | null;
  /** Added to a token's logit, by token id. */
  readonly logitBias: readonly (readonly [token: number, bias: number])[];
  /** Choice i of n uses seed + i; null draws one. */
  readonly seed: number | null;
  /** How many alternatives to report beside the chosen token (0..20); null = no logprobs. */
  readonly topLogprobs: number | null;
}

/** The likeliest token each time, nothing else. */
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
  /** Text that ends a run. */
  readonly sequenceBreakers: readonly string[];
}

/**
 * What the whole output must be. The text of a grammar is the client's: it is translated (engines/grammar/) before any
 * grammar engine sees it. `field` is the request's field a schema came in, which a refusal names.
 */
export type OutputGrammar =
  | { readonly kind: "json" }
  | { readonly kind: "json_schema"; readonly schema: unknown; readonly field: string }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "lark"; readonly grammar: string }
  | { readonly kind: "llguidance"; readonly grammar: string };

/** Which LoRA adapter a request is to be answered with. */
export type AdapterSelector = { readonly alias: string } | { readonly generation: string };

export type Prompt =
  | {
      readonly kind: "chat";
      readonly messages: readonly ChatMessage[];
      readonly templateArguments: TemplateArguments;
    }
  | { readonly kind: "text"; readonly text: string };

/** The part of a request that only its preparation reads. It may be tens of megabytes. */
export interface RequestContent {
  readonly prompt: Prompt;
  readonly grammar: OutputGrammar | null;
  readonly tools: ToolUse | null;
}

/** A RequestContent in serialised form. Threads transfer it without reading it; a text worker opens it. */
export interface SealedContent {
  readonly kind: "sealed";
  readonly isChat: boolean;
  readonly bytes: Uint8Array;
  /** Digest of the grammar and the tools in it; null where there are none. */
  readonly demand: string | null;
}

/** A request whose content is open. */
export type OpenRequest = GenerateRequest & RequestContent;

export interface GenerateRequest {
  /** Model id as configured; resolved by the front. */
  readonly model: string;
  /** null for the base model. */
  readonly adapter: AdapterSelector | null;
  /** Who asks: requests of different clients take turns. Never a key itself. */
  readonly client: string;
  readonly prompt: Prompt | SealedContent;
  readonly sampling: Sampling;
  /** Number of independent choices that are returned. */
  readonly choices: number;
  /** Choices generated, of which the likeliest `choices` by mean logprob are returned; >= choices. */
  readonly candidates: number;
  /** The lower, the sooner it is served; 0 where the client says nothing. */
  readonly priority: number;
  /** null also while the content is sealed. */
  readonly grammar: OutputGrammar | null;
  /** null where there is nothing to call, and while the content is sealed. Only for a chat. */
  readonly tools: ToolUse | null;
  /** Alternatives to report beside each token of the prompt (0..20); null = no logprobs of the prompt. */
  readonly promptLogprobs: number | null;
  /** Most tokens of thinking; what follows is the answer. null = no bound. */
  readonly reasoningBudget: number | null;
  readonly stop: readonly string[];
  /** null = until the context is full. */
  readonly maxTokens: number | null;
  readonly ignoreEos: boolean;
  /** Keep the end of a prompt that is too long, instead of refusing it. */
  readonly truncatePrompt: boolean;
  /** Of an answer that is streamed: under which name its latencies are counted; null where it is not. */
  readonly series: string | null;
  /** When the request came, in milliseconds since 1970. */
  readonly receivedAt: number;
}

/** What a request asks for that says nothing of it. */
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

/** Extra variables a chat template may look at. */
export interface TemplateArguments {
  readonly enableThinking?: boolean;
  readonly reasoningEffort?: string;
}

/** `tool_calls`: it ended by itself or by a stop string, after at least one whole call. */
export type FinishReason = "stop" | "length" | "tool_calls" | "cancelled";

/** Token counts and times of one request. Times are seconds. */
export interface Usage {
  readonly promptTokens: number;
  /** Of those, the ones whose KV was there already. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Of those, the ones spent on thinking. */
  readonly reasoningTokens: number;
  readonly promptSeconds: number;
  readonly completionSeconds: number;
  readonly totalSeconds: number;
  readonly timeline: Timeline;
}

/** When a request got how far, in milliseconds since 1970. */
export interface Timeline {
  /** The agents side has begun with it. */
  readonly startedAt: number;
  /** Its prompt was rendered and in tokens: from here on it waited for the model. */
  readonly queuedAt: number;
  /** The model has begun with its prompt. */
  readonly scheduledAt: number;
  readonly firstTokenAt: number;
  readonly endedAt: number;
}

/**
 * What happens to a request, in order: at most one prompt, begin, the events of its choices, then exactly one of done | error,
 * which may come at any time.
 * A choice has (reasoning | text | call)* (refusal)? finish, where a call is tool_call, tool_arguments*, and either
 * tool_call_end or tool_call_failed; calls of a choice do not overlap.
 */
export type GenerateEvent =
  /** The first token is there. Comes once, before the events of any choice. */
  | {
      readonly type: "begin";
      readonly promptTokens: number;
      readonly cachedTokens: number;
      /** Of the adapter it is answered with; left out for the base model. */
      readonly adapterGeneration?: string;
    }
  /**
   * The prompt's own tokens, where their logprobs were asked for. Nothing comes before the first: what its record says of
   * its logprob means nothing.
   */
  | { readonly type: "prompt"; readonly logprobs: LogprobRecords }
  /** What the model thinks before it answers. */
  | { readonly type: "reasoning"; readonly choice: number; readonly text: string }
  | {
      readonly type: "text";
      readonly choice: number;
      readonly text: string;
      readonly logprobs?: LogprobRecords;
    }
  /** A call begins, the `call`-th of its choice, counted from 0. */
  | {
      readonly type: "tool_call";
      readonly choice: number;
      readonly call: number;
      readonly id: string;
      readonly name: string;
    }
  /** A piece of a call's arguments: JSON text. */
  | { readonly type: "tool_arguments"; readonly choice: number; readonly call: number; readonly text: string }
  /** The arguments are whole, and JSON. */
  | { readonly type: "tool_call_end"; readonly choice: number; readonly call: number }
  /**
   * The call is none: cut off, or no JSON. `text` is all the model wrote of it, which a fold that can still take the call
   * back gives as text; one that cannot has given its arguments as they came.
   */
  | { readonly type: "tool_call_failed"; readonly choice: number; readonly call: number; readonly text: string }
  /** The text of a choice is no answer: it is not what the request demanded, for this reason. */
  | { readonly type: "refusal"; readonly choice: number; readonly reason: string }
  | {
      readonly type: "finish";
      readonly choice: number;
      readonly reason: FinishReason;
      /** The stop string that ended it, if one did. */
      readonly stopString: string | null;
    }
  | { readonly type: "done"; readonly usage: Usage }
  | { readonly type: "error"; readonly error: ErrorRecord };
