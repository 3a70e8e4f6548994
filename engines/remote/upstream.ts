// Upstream: a server on which a remote model runs. A dialect is the protocol of the upstream's engine. It writes a request for one
// sequence, with the prompt as token ids, and reads the events of the response. It opens no connections.
import type { Sampling } from "../generation.ts";
import type { GrammarNotation } from "../grammar-source.ts";

/** Settings of a model that runs on other servers. Plain data. */
export interface RemoteSettings {
  /** Base addresses of the servers, without "/" at the end. All servers have the same model. */
  readonly urls: readonly string[];
  /** Name of the model on the servers; null = the first model that a server lists. */
  readonly model: string | null;
  /** API key, sent as a bearer token; null = no key is sent. */
  readonly apiKey: string | null;
  /**
   * How a server is chosen. "prefix": prompts with the same beginning go to the same server, unless it has too much load. "least": the
   * server with the least load.
   */
  readonly balance: "prefix" | "least";
  /** Maximum number of requests that run on a server at the same time. */
  readonly slots: number;
  readonly connectTimeoutMs: number;
  /** Maximum time in milliseconds from sending a request to receiving its first token. */
  readonly firstTokenTimeoutMs: number;
  /** Maximum time in milliseconds between two tokens. */
  readonly stallTimeoutMs: number;
  readonly probeIntervalMs: number;
  /** Maximum number of retries if a request fails before its first token. */
  readonly retries: number;
}

/** Facts about a model on an upstream. */
export interface UpstreamModel {
  /** Name of the model in requests. */
  readonly name: string;
  /** Maximum number of tokens in a sequence: prompt and output together. */
  readonly contextTokens: number;
  /** Number of sequences that the upstream computes at the same time; null = unknown. */
  readonly slots: number | null;
  /** Vocabulary size in tokens; null = unknown. */
  readonly vocabSize: number | null;
  readonly trainedContext: number | null;
  /** Number of parameters of the model; 0 = unknown. */
  readonly parameterCount: number;
  /** Size of the weights in bytes; 0 = unknown. */
  readonly weightBytes: number;
}

/** Request to generate the tokens of one sequence. */
export interface UpstreamRequest {
  readonly model: string;
  readonly prompt: readonly number[];
  /** Maximum number of generated tokens, at least 1. */
  readonly maxTokens: number;
  readonly minTokens: number;
  readonly ignoreEos: boolean;
  /** Tokens that end the sequence, in addition to those that the upstream knows. An upstream may ignore them. */
  readonly stopTokens: readonly number[];
  readonly sampling: Sampling;
  /** Sampling seed of this sequence; null = random. */
  readonly seed: number | null;
  /** Grammar in the dialect's notation; null = none. */
  readonly grammar: string | null;
}

/**
 * Logprobs of one token. `chosen`: logprob of the token itself. `top`: the most likely tokens as pairs of id and logprob, in descending
 * order of logprob.
 */
export interface UpstreamLogprobs {
  readonly chosen: number;
  readonly top: readonly (readonly [token: number, logprob: number])[];
}

/** Content of one event of a response. */
export interface UpstreamEvent {
  /** New tokens, in order. */
  readonly tokens: readonly number[];
  /** Logprobs of the new tokens; null: not requested. */
  readonly logprobs: readonly UpstreamLogprobs[] | null;
  /** Reason why the sequence has ended; null = it has not ended. */
  readonly end: "stop" | "length" | null;
  /** Number of prompt tokens found in the upstream's cache; null = not reported in this event. */
  readonly cachedTokens: number | null;
}

/** Reader of the events of one response. It may keep state between events. */
export interface EventReader {
  /** Reads the JSON of one event. Throws UpstreamFailure for an error event, and for JSON of an unexpected shape. */
  read(event: unknown): UpstreamEvent;
}

export interface Dialect {
  /** Name of the dialect (protocol of the upstream) in messages and settings. */
  readonly name: string;
  /** Notation in which the upstream accepts grammars; null = it accepts no grammars. */
  readonly grammar: GrammarNotation | null;
  /** URL path of the endpoint that generates tokens. */
  readonly path: string;
  /** Returns the JSON body of a request. Throws `unsupported` naming the field if the upstream has no equivalent for it. */
  body(request: UpstreamRequest): string;
  /** Creates the reader for the response to a request. */
  reader(request: UpstreamRequest): EventReader;
  /** Returns the JSON body for POST /tokenize, whose response has the list `tokens`. */
  tokenizeBody(model: string, text: string): string;
}

/** Kind of a failed request to an upstream. */
export type FailureKind =
  /** The connection could not be opened, or it was lost. */
  | "connection"
  /** The upstream did not respond in time. */
  | "timeout"
  /** The upstream has too many requests at the moment (status 429). */
  | "busy"
  /** The upstream failed (status 5xx or an error event). */
  | "failed"
  /** The upstream's response violates its protocol. */
  | "garbage"
  /** The upstream rejects the request itself, so a retry would fail too. */
  | "refused"
  /** The upstream rejects the API key. */
  | "key";

export class UpstreamFailure extends Error {
  override readonly name = "UpstreamFailure";
  readonly kind: FailureKind;
  /** Time in milliseconds after which the upstream asks for a retry; null = not specified. */
  readonly retryAfterMs: number | null;

  constructor(kind: FailureKind, message: string, retryAfterMs: number | null = null) {
    super(message);
    this.kind = kind;
    this.retryAfterMs = retryAfterMs;
  }
}
