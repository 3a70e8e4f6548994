// Owns every message of every actor: one protocol interface an actor, whose methods take one plain-data message. What is
// not a request and a reply travels as frames: see TokenFrame.

import type { PrefixStatistics } from "../engines/decoding/kv/prefix-cache.ts";
import type { PrefixStoreOptions } from "../engines/decoding/prefix-store/prefix-store.ts";
import type { SchedulerLimits } from "../engines/decoding/scheduler/limits.ts";
import type { SpeculationOptions } from "../engines/decoding/speculation/options.ts";
import type { SpeculationStatistics } from "../engines/decoding/speculation/speculation.ts";
import type { Capabilities, Capacity, EngineName, ModelCard, ModelSpec } from "../engines/engine.ts";
import type { HeadBytes } from "../engines/files/gguf/reader.ts";
import type { GenerateRequest, Sampling } from "../engines/generation.ts";
import type { GrammarSource } from "../engines/grammar-source.ts";
import type { ModelTemplateCapabilities } from "../engines/text/template/template-capabilities.ts";
import type { TokenTextTable } from "../engines/text/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../runtime/errors.ts";
import type { StoreLimits } from "../runtime/store/store.ts";
import type { DialTicket } from "../runtime/thread/dial.ts";
import type { BodyToTranslate } from "./api/body-translators.ts";
import type { LatencyCounts } from "./api/engine-metric.ts";
import type { Embeddings, EmbedRequest } from "./api/inference.ts";

/** The model actor: one a loaded model, on the model's own place. */
export interface ModelProtocol {
  /** Queues all jobs or none. Throws queue_full, context_length_exceeded, invalid_value, unsupported, model_failed. */
  generate(message: { readonly jobs: readonly SequenceJob[] }): Promise<void>;
  /** The pooled output of each prompt, once all are computed: Capabilities.pooledLength floats a prompt. */
  pool(message: { readonly id: number; readonly job: PoolJob }): Promise<Float32Array>;
  /** Ends sequences before the next step: `stop` where their text has met a stop string. */
  cancel(message: { readonly ids: readonly number[]; readonly how?: "cancelled" | "stop" }): void;
  /** A paused sequence is not scheduled, and keeps its slot only while nobody else waits for one. */
  setPaused(message: { readonly ids: readonly number[]; readonly paused: boolean }): void;
  statistics(message: null): ModelStatistics;
  /** Makes a prepared adapter one that jobs may name. Throws what AdapterHost.load does, unsupported, conflict. */
  loadAdapter(message: AdapterToLoad): Promise<void>;
  /** Frees an adapter as soon as none of its sequences is left; jobs that come and name it are refused. Settles then. */
  unloadAdapter(message: { readonly id: number }): Promise<void>;
}

/** A prepared adapter (engines/lora/) for a model's place. */
export interface AdapterToLoad {
  /** Above 0, and no other adapter's in the life of this place. */
  readonly id: number;
  readonly generation: string;
  readonly path: string;
}

/** The adapter a run holds a lease on. */
export interface LeasedAdapter {
  readonly id: number;
  /** null where it is the model's own, which nobody chooses. */
  readonly generation: string | null;
}

/** How a model is doing: sequences now, totals since it was loaded. */
export interface ModelStatistics {
  readonly slots: number;
  readonly running: number;
  readonly waiting: number;
  /** Without a slot because their readers are behind. */
  readonly parked: number;
  /** Times a paused sequence has lost its slot, times any has for want of KV memory, and to a client with fewer slots. */
  readonly preemptions: number;
  readonly memoryPreemptions: number;
  readonly sharePreemptions: number;
  readonly steps: number;
  /** Tokens generated, and prompt tokens computed. */
  readonly tokens: number;
  readonly promptTokens: number;
  /** Milliseconds inside the engine's forward pass, and in whole steps. */
  readonly engineMs: number;
  readonly totalMs: number;
  readonly ended: EndCounts;
  readonly prefixCache: PrefixStatistics;
  readonly kvBlocks: { readonly used: number; readonly total: number };
  /** In memory now; and steps that had another adapter than the one before, where a step can have one only. */
  readonly adapters: { readonly loaded: number; readonly switches: number };
  readonly speculation: Omit<SpeculationStatistics, "acceptedAt"> & { readonly acceptedAt: readonly number[] };
  readonly latencies: readonly SeriesLatencies[];
}

/** How long streamed answers of one series had to wait for their tokens. */
export interface SeriesLatencies {
  readonly series: string;
  /** From the request's coming to its first token. */
  readonly firstToken: LatencyCounts;
  /** From token to token. */
  readonly interToken: LatencyCounts;
}

/** How many sequences have ended, by how. */
export interface EndCounts {
  stop: number;
  length: number;
  cancelled: number;
  error: number;
}

/** One sequence to generate. */
export interface SequenceJob {
  /** Chosen by the consumer, unique among its own. */
  readonly id: number;
  /** Who asks; clients take turns for slots and for the prompt's share of a step. */
  readonly client: string;
  readonly prompt: Int32Array;
  /** >= 1; null = until the context is full. */
  readonly maxNewTokens: number | null;
  readonly ignoreEos: boolean;
  /** 0 for the base model. */
  readonly adapter: number;
  readonly sampling: Sampling;
  /** Which of a request's n choices this is: shifts the seed. */
  readonly choice: number;
  /** Tokens that end a DRY run. */
  readonly breakers: Int32Array;
  /** The lower, the sooner. */
  readonly priority: number;
  readonly grammar: GrammarSource | null;
  /** Alternatives beside each prompt token's logprob; null = no logprobs of the prompt. */
  readonly promptLogprobs: number | null;
  readonly reasoningBudget: ReasoningLimit | null;
  /** Under which name the latencies of a streamed answer are counted; null where it is not streamed. */
  readonly series: string | null;
  /** When its request came, in milliseconds since 1970. */
  readonly receivedAt: number;
}

/** The neutral values of what few jobs ask for. */
export const jobDefaults = {
  priority: 0,
  grammar: null,
  promptLogprobs: null,
  reasoningBudget: null,
  series: null,
  receivedAt: 0,
} as const satisfies Partial<SequenceJob>;

/** Where the output begins with `begin` and has not ended its thinking after `tokens` more, `end` comes next. */
export interface ReasoningLimit {
  readonly tokens: number;
  /** Empty where the prompt has begun the thinking. */
  readonly begin: Int32Array;
  readonly end: Int32Array;
}

/** Prompts whose pooled outputs are wanted. */
export interface PoolJob {
  readonly client: string;
  readonly prompts: readonly Int32Array[];
  /** 0 for the base model. */
  readonly adapter: number;
  readonly priority: number;
}

/** Channel of token frames on the link between a model place and a consumer. */
export const tokenChannel = "tokens";

/** What one step, or a few short ones, made for one consumer. */
export interface TokenFrame {
  /** `rowInts` ints a row: sequence id, token, flags, elapsed (10 us units since the sequence was first scheduled). */
  readonly rows: Int32Array;
  /** For each row flagged `rowHasLogprobs`, in order: chosen logprob, count n, then n pairs of (token id, logprob). */
  readonly logprobs: Float32Array | null;
  /** Pairs (sequence id, prompt tokens whose KV was there already) of sequences whose first token is in this frame. */
  readonly cached: Int32Array | null;
  /** Logprobs of prompts, those asked for and whole. */
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
/** Set where the token belongs to the text: an end-of-generation token does not. */
export const rowHasToken = 1;
export const rowHasLogprobs = 2;
export const rowFinishedStop = 4;
export const rowFinishedLength = 8;

/** Seconds in a unit of a row's elapsed time. */
export const elapsedUnitSeconds = 1e-5;

/** What a model place is told when it starts. */
export interface ModelPlaceInit {
  readonly engine: EngineName;
  readonly spec: ModelSpec;
  readonly limits: SchedulerLimits;
  /** How long a token may wait for others to leave with. */
  readonly frameIntervalMs: number;
  readonly mailboxLimit: number;
  readonly speculation: SpeculationOptions;
  /** Where KV of prompts is kept on disk; null where it is not. */
  readonly prefixStore: PrefixStoreOptions | null;
}

/** What a model place reports: the fraction that is loaded, and later what its operator should know. */
export type ModelReport = number | { readonly notice: string };

/** What a model place answers when the model is loaded. */
export interface ModelPlaceReady {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  /** Sequences that may be without a slot. */
  readonly maxQueue: number;
  /** The engine's own tokens for each text of `vocabularyProbes`; null where it has no tokenizer. */
  readonly probes: readonly Int32Array[] | null;
}

/** The models actor of the agents place: apart from the agents actor, so that no run waits while a model is attached. */
export interface ModelsProtocol {
  /** Makes a model available to runs: reads its vocabulary and template, links to its place. Returns what it has read. */
  attachModel(message: AttachedModel): Promise<ModelFiles>;
  detachModel(message: { readonly id: string; readonly error: ErrorRecord }): void;
}

/** The agents actor: has prompts prepared, follows a request's sequences and turns tokens into events. */
export interface GenerationProtocol {
  /** Starts a run whose events go to stream `run` of the events channel. Settles when its prompt is prepared, or it has ended. */
  start(message: {
    readonly run: number;
    readonly request: GenerateRequest;
    /** null for the base model. */
    readonly adapter: LeasedAdapter | null;
  }): void;
  /** Tokens of the prompt a request comes to. Throws what would refuse the request. `run`: a number to cancel it by. */
  countTokens(message: { readonly run: number; readonly request: GenerateRequest }): Promise<number>;
  textStatistics(message: null): TextStatistics;
  /** What a request body says, see BodyTranslators. */
  translate(message: { readonly run: number; readonly body: BodyToTranslate }): Promise<unknown>;
  /** Gives up countTokens or translate: it rejects with `cancelled`. */
  cancelTask(message: { readonly run: number }): void;
  /** Starts embedding inputs; the one event that ends it goes to stream `run` of the events channel. */
  embed(message: {
    readonly run: number;
    readonly request: EmbedRequest;
    /** null for the base model. */
    readonly adapter: LeasedAdapter | null;
  }): void;
}

export type EmbedEvent =
  | { readonly type: "embeddings"; readonly embeddings: Embeddings }
  | { readonly type: "error"; readonly error: ErrorRecord };

export interface AttachedModel {
  readonly id: string;
  readonly path: string;
  readonly chatTemplate: string | null;
  readonly jinjaExplicit: string | null;
  readonly ready: ModelPlaceReady;
  readonly ticket: DialTicket;
  /** What an earlier attach has read of its files, which may be gone; null where none has. */
  readonly files: ModelFiles | null;
}

/** What the text side needs of a model's files. */
export interface ModelFiles {
  readonly head: HeadBytes;
  /** The chat template that the configuration names; null where the model's own is used. */
  readonly template: string | null;
  /** What its chat templates accept. */
  readonly templateCapabilities: ModelTemplateCapabilities;
  readonly tokenTexts: TokenTextTable;
}

/** Channel of event streams on the link between the front and an agents place. */
export const eventChannel = "events";

/** What an agents place is told when it starts. */
export interface GenerationPlaceInit {
  readonly mailboxLimit: number;
  /** Events a run may be ahead of its reader before its sequences pause. */
  readonly streamWindow: number;
  /** A run whose reader takes nothing for so long is cancelled. */
  readonly stalledReaderMs: number;
  readonly textTasks: TextTaskSettings;
}

/** How reading what clients write is doing. */
export interface TextStatistics {
  /** Tasks that wait for a text worker now. */
  readonly waiting: number;
  /** Tasks that took long, ever. */
  readonly slow: number;
  /** Tasks that were ended, by what for. */
  readonly ended: Readonly<Record<"time" | "memory" | "crash", number>>;
}

/** What the agents place reports when a text task has been ended. */
export interface EndedTask {
  readonly client: string;
  readonly reason: string;
}

/** What the agents place tells between requests. */
export type GenerationPlaceReport =
  | { readonly endedTask: EndedTask }
  /** No text worker starts any more, or one does again. */
  | { readonly textWorkersAreDown: boolean };

/** How the agents place runs tasks on clients' text. */
export interface TextTaskSettings {
  /** URL of a TranslatorModule. */
  readonly translators: string;
  /** Quick tasks at once; slow ones run besides. */
  readonly quickWorkers: number;
  /** Most slow tasks at once. */
  readonly slowWorkers: number;
  /** Most tasks that wait. */
  readonly maxQueued: number;
  /** A task that takes more is ended. */
  readonly limitSeconds: number;
  readonly heapMiB: number;
}

/** What the state place is told when it starts. Its actors' protocols are their faces: StoredResponses. */
export interface StatePlaceInit {
  /** Made where it is missing; null keeps all in memory. */
  readonly folder: string | null;
  readonly mailboxLimit: number;
  readonly responses: StoreLimits;
}
