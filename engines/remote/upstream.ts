// Upstream: the server that a remote model runs on. A dialect is the protocol of its engine. A dialect writes the request for
// one sequence as token ids, and reads the events of its response. It opens no connections.
import type { Sampling } from "../generation.ts";
import type { GrammarNotation } from "../grammar-source.ts";

/** Settings of a model on other servers. Plain data. */
export interface RemoteSettings {
  /** Base addresses of the servers, without "/" at the end. All serve the same model. */
  readonly urls: readonly string[];
  /** Name of the model on the servers; null: the first that a server lists. */
  readonly model: string | null;
  /** Key sent as a bearer token; null: none. */
  readonly apiKey: string | null;
  /** prefix: prompts with the same beginning go to the same server, unless it is loaded; least: the least loaded server. */
  readonly balance: "prefix" | "least";
  /** Maximum number of requests that a server computes at once. */
  readonly slots: number;
  readonly connectTimeoutMs: number;
  /** Maximum time from sending a request to its first token. */
  readonly firstTokenTimeoutMs: number;
  /** Maximum time between two tokens. */
  readonly stallTimeoutMs: number;
  readonly probeIntervalMs: number;
  /** Number of further attempts after a request has failed before its first token. */
  readonly retries: number;
}

/** Facts about a model on an upstream. */
export interface UpstreamModel {
  /** Name of the model in requests. */
  readonly name: string;
  /** Maximum number of tokens of a sequence, prompt and output. */
  readonly contextTokens: number;
  /** Number of sequences that the upstream computes at once; null: unknown. */
  readonly slots: number | null;
  /** Number of tokens of the vocabulary; null: unknown. */
  readonly vocabSize: number | null;
  readonly trainedContext: number | null;
  /** 0: unknown. */
  readonly parameterCount: number;
  /** Size of the weights in bytes; 0: unknown. */
  readonly weightBytes: number;
}

/** Request for the tokens of one sequence. */
export interface UpstreamRequest {
  readonly model: string;
  readonly prompt: readonly number[];
  /** Maximum number of generated tokens, at least 1. */
  readonly maxTokens: number;
  readonly minTokens: number;
  readonly ignoreEos: boolean;
  readonly stopTokens: readonly number[];
  readonly sampling: Sampling;
  /** Seed of this sequence; null: random. */
  readonly seed: number | null;
  /** Grammar in the notation of the dialect; null: none. */
  readonly grammar: string | null;
}

/** Logprobs of one token. `top`: the likeliest tokens as pairs of id and logprob, likeliest first. */
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
  /** Why the sequence has ended; null: it has not. */
  readonly end: "stop" | "length" | null;
  /** Number of prompt tokens found in the upstream's cache; null: not reported by this event. */
  readonly cachedTokens: number | null;
}

/** Reads the events of one response. */
export interface EventReader {
  /** Reads the JSON of one event. Throws UpstreamFailure for an error event, and for JSON of another shape. */
  read(event: unknown): UpstreamEvent;
}

export interface Dialect {
  /** Name in messages and settings. */
  readonly name: string;
  /** Notation of grammars; null: the upstream takes none. */
  readonly grammar: GrammarNotation | null;
  /** Path that generates tokens. */
  readonly path: string;
  /** Returns the body of a request. Throws `unsupported`, naming a field that the upstream has no equivalent for. */
  body(request: UpstreamRequest): string;
  /** Opens the reader of a response to a request. */
  reader(request: UpstreamRequest): EventReader;
  /** Body of POST /tokenize, whose response has the list `tokens`. */
  tokenizeBody(model: string, text: string): string;
}

/** What went wrong between us and an upstream. */
export type FailureKind =
  /** No connection, or it broke. */
  | "connection"
  /** The upstream did not answer in time. */
  | "timeout"
  /** The upstream has no room now: 429. */
  | "busy"
  /** The upstream failed: status 5xx, or an error event. */
  | "failed"
  /** The upstream sent what its protocol does not allow. */
  | "garbage"
  /** The upstream refuses the request itself: another attempt would fail too. */
  | "refused"
  /** The upstream refuses the key. */
  | "key";

export class UpstreamFailure extends Error {
  override readonly name = "UpstreamFailure";
  readonly kind: FailureKind;
  /** Time after which the upstream wants another attempt, in ms; null: not said. */
  readonly retryAfterMs: number | null;

  constructor(kind: FailureKind, message: string, retryAfterMs: number | null = null) {
    super(message);
    this.kind = kind;
    this.retryAfterMs = retryAfterMs;
  }
}
