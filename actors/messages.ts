// Messages of all actors: a protocol interface for each actor, whose methods take one plain-data message. Tokens travel as
// frames instead, see TokenFrame.

import type { PrefixStatistics } from "../engines/decoding/kv/prefix-cache.ts";
import type { PrefixStoreOptions } from "../engines/decoding/prefix-store/prefix-store.ts";
import type { SchedulerLimits } from "../engines/decoding/scheduler/limits.ts";
import type { SpeculationOptions } from "../engines/decoding/speculation/options.ts";
import type { SpeculationStatistics } from "../engines/decoding/speculation/speculation.ts";
import type { Capabilities, Capacity, EngineName, ModelCard, ModelSpec } from "../engines/engine.ts";
import type { HeadBytes } from "../engines/files/gguf/reader.ts";
import type { GenerateEvent, GenerateRequest, Sampling } from "../engines/generation.ts";
import type { GrammarSource } from "../engines/grammar-source.ts";
import type { ModelTemplateCapabilities } from "../engines/text/template/template-capabilities.ts";
import type { TokenTextTable } from "../engines/text/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../runtime/errors.ts";
import type { StoreLimits } from "../runtime/store/store.ts";
import type { DialTicket } from "../runtime/thread/dial.ts";
import type { BodyToTranslate } from "./api/body-translators.ts";
import type { LatencyCounts } from "./api/engine-metric.ts";
import type { Embeddings, EmbedRequest } from "./api/inference.ts";

/** The actor `model`: one for each loaded model, on the model's own place. */
export interface ModelProtocol {
  /** Queues all jobs or none. Throws queue_full, context_length_exceeded, invalid_value, unsupported, model_failed. */
  generate(message: { readonly jobs: readonly SequenceJob[] }): Promise<void>;
  /** The pooled outputs of the prompts, once all are computed: Capabilities.pooledLength floats for each prompt. */
  pool(message: { readonly id: number; readonly job: PoolJob }): Promise<Float32Array>;
  /** Ends sequences before the next step. `stop`: their text has reached a stop string. */
  cancel(message: { readonly ids: readonly number[]; readonly how?: "cancelled" | "stop" }): void;
  /** A paused sequence is not scheduled, and keeps its slot only while no other sequence waits for one. */
  setPaused(message: { readonly ids: readonly number[]; readonly paused: boolean }): void;
  statistics(message: null): ModelStatistics;
  /** Loads a prepared adapter, so that jobs can name it. Throws the errors of AdapterHost.load, unsupported, conflict. */
  loadAdapter(message: AdapterToLoad): Promise<void>;
  /** Frees an adapter once its sequences have ended, then settles. New jobs that name it are refused. */
  unloadAdapter(message: { readonly id: number }): Promise<void>;
}

/** A prepared adapter (engines/files/lora/) for a model's place. */
export interface AdapterToLoad {
  /** Above 0; unique in the life of the place. */
  readonly id: number;
  readonly generation: string;
  readonly path: string;
}

/** The adapter that a generation holds a lease on. */
export interface LeasedAdapter {
  readonly id: number;
  /** null: the model's own adapter, which requests cannot choose. */
  readonly generation: string | null;
}

/** Statistics of a model: sequences now, totals since it was loaded. */
export interface ModelStatistics {
  readonly slots: number;
  readonly running: number;
  readonly waiting: number;
  /** Sequences without a slot because their readers are behind. */
  readonly parked: number;
  /** Times a sequence lost its slot: because it was paused, for lack of KV memory, to a client with fewer slots. */
  readonly preemptions: number;
  readonly memoryPreemptions: number;
  readonly sharePreemptions: number;
  readonly steps: number;
  /** Generated tokens, and computed prompt tokens. */
  readonly tokens: number;
  readonly promptTokens: number;
  /** Milliseconds in forward passes of the engine, and in whole steps. */
  readonly engineMs: number;
  readonly totalMs: number;
  readonly ended: EndCounts;
  readonly prefixCache: PrefixStatistics;
  readonly kvBlocks: { readonly used: number; readonly total: number };
  /** Adapters in memory now; steps with another adapter than the step before, if a step can have only one. */
  readonly adapters: { readonly loaded: number; readonly switches: number };
  readonly speculation: Omit<SpeculationStatistics, "acceptedAt"> & { readonly acceptedAt: readonly number[] };
  readonly latencies: readonly SeriesLatencies[];
}

/** Token latencies of the streamed answers of one series. */
export interface SeriesLatencies {
  readonly series: string;
  /** From the arrival of the request to its first token. */
  readonly firstToken: LatencyCounts;
  /** From token to token. */
  readonly interToken: LatencyCounts;
}

/** Number of ended sequences, by reason. */
export interface EndCounts {
  stop: number;
  length: number;
  cancelled: number;
  error: number;
}

/** One sequence to generate. */
export interface SequenceJob {
  /** Chosen by the consumer; unique among its sequences. */
  readonly id: number;
  /** Clients take turns for slots and for the prompt's share of a step. */
  readonly client: string;
  readonly prompt: Int32Array;
  /** >= 1; null = until the context is full. */
  readonly maxNewTokens: number | null;
  readonly ignoreEos: boolean;
  /** 0 for the base model. */
  readonly adapter: number;
  readonly sampling: Sampling;
  /** Index among a request's choices: shifts the seed. */
  readonly choice: number;
  /** Tokens that end a DRY run. */
  readonly breakers: Int32Array;
  /** Lower is served first. */
  readonly priority: number;
  readonly grammar: GrammarSource | null;
  /** Alternatives beside each prompt token's logprob; null = no logprobs of the prompt. */
  readonly promptLogprobs: number | null;
  readonly reasoningBudget: ReasoningLimit | null;
  /** Name under which the latencies of a streamed answer are counted; null if it is not streamed. */
  readonly series: string | null;
  /** Arrival of the request, milliseconds since 1970. */
  readonly receivedAt: number;
}

/** Neutral values of fields that few jobs set. */
export const jobDefaults = {
  priority: 0,
  grammar: null,
  promptLogprobs: null,
  reasoningBudget: null,
  series: null,
  receivedAt: 0,
} as const satisfies Partial<SequenceJob>;

/** If the output begins with `begin` and its reasoning has not ended after `tokens` more tokens, `end` is forced. */
export interface ReasoningLimit {
  readonly tokens: number;
  /** Empty if the prompt has begun the reasoning. */
  readonly begin: Int32Array;
  readonly end: Int32Array;
}

/** Prompts to pool. */
export interface PoolJob {
  readonly client: string;
  readonly prompts: readonly Int32Array[];
  /** 0 for the base model. */
  readonly adapter: number;
  readonly priority: number;
}

/** Channel of token frames on the link between a model place and a consumer. */
export const tokenChannel = "tokens";

/** Output of one step, or of a few short steps, for one consumer. */
export interface TokenFrame {
  /** `rowInts` ints a row: sequence id, token, flags, elapsed (10 us units since the sequence was first scheduled). */
  readonly rows: Int32Array;
  /** For each row flagged `rowHasLogprobs`, in order: chosen logprob, count n, then n pairs of (token id, logprob). */
  readonly logprobs: Float32Array | null;
  /** Pairs (sequence id, prompt tokens found in the KV cache) of sequences whose first token is in this frame. */
  readonly cached: Int32Array | null;
  /** Logprobs of prompts: requested and complete. */
  readonly prompts: readonly PromptLogprobsRecord[];
  /** Sequences that ended with an error. */
  readonly failed: readonly { readonly id: number; readonly error: ErrorRecord }[];
}

/** `2 + 2 * top` floats for each prompt token but the first: its logprob, count n, n pairs of (token id, logprob), padding. */
export interface PromptLogprobsRecord {
  readonly id: number;
  readonly records: Float32Array;
}

export const rowInts = 4;
/** The token belongs to the text; an end-of-generation token does not. */
export const rowHasToken = 1;
export const rowHasLogprobs = 2;
export const rowFinishedStop = 4;
export const rowFinishedLength = 8;

/** Seconds per unit of a row's elapsed time. */
export const elapsedUnitSeconds = 1e-5;

/** Start parameters of a model place. */
export interface ModelPlaceInit {
  readonly engine: EngineName;
  readonly spec: ModelSpec;
  readonly limits: SchedulerLimits;
  /** Longest time a token waits for others to share a frame with. */
  readonly frameIntervalMs: number;
  readonly mailboxLimit: number;
  readonly speculation: SpeculationOptions;
  /** Prefix cache on disk; null: none. */
  readonly prefixStore: PrefixStoreOptions | null;
}

/** Progress report of a model place: the loaded fraction, and later notices for the operator. */
export type ModelReport = number | { readonly notice: string };

/** Answer of a model place once the model is loaded. */
export interface ModelPlaceReady {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  /** Most sequences without a slot. */
  readonly maxQueue: number;
  /** The engine's own tokens for each text of `vocabularyProbes`; null if it has no tokenizer. */
  readonly probes: readonly Int32Array[] | null;
}

/** The actor `models` of the generation place. Separate from `generation`, so that no request waits while a model is attached. */
export interface ModelsProtocol {
  /** Makes a model available: reads its vocabulary and template, links to its place. Returns what it has read. */
  attachModel(message: AttachedModel): Promise<ModelFiles>;
  detachModel(message: { readonly id: string; readonly error: ErrorRecord }): void;
}

/** The actor `generation`: has prompts prepared, follows a request's sequences and turns tokens into events. */
export interface GenerationProtocol {
  /** A tell: starts a generation. Its events, also every error, go to stream `stream` of the events channel. */
  start(message: {
    readonly stream: number;
    readonly request: GenerateRequest;
    /** null for the base model. */
    readonly adapter: LeasedAdapter | null;
  }): void;
  /** Number of prompt tokens of a request. Throws what would refuse the request. `task`: for cancelTask. */
  countTokens(message: { readonly task: number; readonly request: GenerateRequest }): Promise<number>;
  textStatistics(message: null): TextStatistics;
  /** Translates a request body, see BodyTranslators. */
  translate(message: { readonly task: number; readonly body: BodyToTranslate }): Promise<unknown>;
  embed(message: {
    readonly task: number;
    readonly request: EmbedRequest;
    /** null for the base model. */
    readonly adapter: LeasedAdapter | null;
  }): Promise<Embeddings>;
  /** Cancels countTokens, translate or embed, which rejects with `cancelled`. */
  cancelTask(message: { readonly task: number }): void;
}

/** An item of a stream of the events channel. `prepared`: the prompt is in tokens, the request's content is released. */
export type GenerationEvent = GenerateEvent | { readonly type: "prepared" };

export interface AttachedModel {
  readonly id: string;
  readonly path: string;
  readonly chatTemplate: string | null;
  readonly jinjaExplicit: string | null;
  readonly ready: ModelPlaceReady;
  readonly ticket: DialTicket;
  /** Result of an earlier attach: the files may be gone since. null: none. */
  readonly files: ModelFiles | null;
}

/** The parts of a model's files that text tasks need. */
export interface ModelFiles {
  readonly head: HeadBytes;
  /** The configured chat template; null: the model's own. */
  readonly template: string | null;
  readonly templateCapabilities: ModelTemplateCapabilities;
  readonly tokenTexts: TokenTextTable;
}

/** Channel of event streams on the link between the main thread and the generation place. */
export const eventChannel = "events";

/** Start parameters of the generation place. */
export interface GenerationPlaceInit {
  readonly mailboxLimit: number;
  /** Number of events a generation may be ahead of its reader before its sequences pause. */
  readonly streamWindow: number;
  readonly textTasks: TextTaskSettings;
}

/** Counts of text tasks; totals since the generation place was started. */
export interface TextStatistics {
  /** Tasks that wait for a text worker now. */
  readonly waiting: number;
  /** Total of slow tasks. */
  readonly slow: number;
  /** Total of tasks that were ended, by reason. */
  readonly ended: Readonly<Record<"time" | "memory" | "crash", number>>;
}

/** A text task that was ended. */
export interface EndedTask {
  readonly client: string;
  readonly reason: string;
}

/** Progress report of the generation place. */
export type GenerationPlaceReport =
  | { readonly endedTask: EndedTask }
  /** True: text workers fail to start. False: one has started again. */
  | { readonly textWorkersAreDown: boolean };

/** Limits of the tasks that process clients' text. */
export interface TextTaskSettings {
  /** URL of a TranslatorModule. */
  readonly translators: string;
  /** Number of workers for quick tasks; slow tasks have others. */
  readonly quickWorkers: number;
  /** Most slow tasks at the same time. */
  readonly slowWorkers: number;
  /** Most tasks that wait. */
  readonly maxQueued: number;
  /** A task that takes longer is ended. */
  readonly limitSeconds: number;
  readonly heapMiB: number;
}

/** Start parameters of the state place. The protocol of its actor is StoredResponses. */
export interface StatePlaceInit {
  /** Created if absent; null keeps all in memory. */
  readonly folder: string | null;
  readonly mailboxLimit: number;
  readonly responses: StoreLimits;
}
