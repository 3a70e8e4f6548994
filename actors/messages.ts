// Messages of all actors: one protocol interface per actor. Each method takes one message of plain data. Tokens are not sent as
// messages but as frames, see TokenFrame.

import type { PromptSpan } from "../engines/batch.ts";
import type { PrefixStatistics } from "../engines/decoding/kv/prefix-cache.ts";
import type { PrefixStoreOptions } from "../engines/decoding/prefix-store/prefix-store.ts";
import type { SchedulerLimits } from "../engines/decoding/scheduler/limits.ts";
import type { SpeculationOptions } from "../engines/decoding/speculation/options.ts";
import type { SpeculationStatistics } from "../engines/decoding/speculation/speculation.ts";
import type { DiffusionCard, DiffusionSpec } from "../engines/diffusion/diffusion.ts";
import type {
  AudioSpec,
  Capabilities,
  Capacity,
  EngineName,
  ImageSpec,
  InputSums,
  ModelCard,
  ModelSpec,
} from "../engines/engine.ts";
import type { HeadBytes } from "../engines/files/gguf/reader.ts";
import type { GenerateEvent, GenerateRequest, ResolvedRequest, Sampling } from "../engines/generation.ts";
import type { GrammarSource } from "../engines/grammar-source.ts";
import type { PreparedMedia, TileSpan } from "../engines/media/media-tokens.ts";
import type { EncodedMedia, EncoderCacheStatistics } from "../engines/media/model-media.ts";
import type { RemoteSettings } from "../engines/remote/upstream.ts";
import type { SpeechCard, SpeechSpec } from "../engines/speech/speech.ts";
import type { ModelTemplateCapabilities } from "../engines/text/template/template-capabilities.ts";
import type { TokenTextTable } from "../engines/text/tokenizer/token-texts.ts";
import type { ErrorRecord } from "../runtime/errors.ts";
import type { SandboxSettings } from "../runtime/sandbox/sandbox.ts";
import type { StoreLimits } from "../runtime/store/store.ts";
import type { DialTicket } from "../runtime/thread/dial.ts";
import type { FoundPage, PageText, WebOptions } from "./api/agent/web.ts";
import type { BodyToTranslate } from "./api/body-translators.ts";
import type { CalibrationStatus } from "./api/calibration.ts";
import type { LatencyCounts } from "./api/engine-metric.ts";
import type { ImageGenerationRequest } from "./api/images/image-generation.ts";
import type { ConvertedTokens, Embeddings, EmbedRequest, ModelFileFacts, TokensRequest } from "./api/inference.ts";
import type { SpeakRequest, TranscribeRequest } from "./api/speech/speech.ts";

/** Protocol of the actor `model`. Each loaded model has one, in its own worker thread or process. */
export interface ModelProtocol {
  /**
   * Queues all jobs, or none if one is rejected. Throws queue_full, context_length_exceeded,
   * invalid_value, unsupported, model_failed.
   */
  generate(message: { readonly jobs: readonly SequenceJob[] }): Promise<void>;
  /**
   * Decodes and encodes images and audio, and holds their embeddings until the hold is released. Throws invalid_value for a
   * file that cannot be decoded, queue_full, unsupported.
   */
  prepareMedia(message: MediaToPrepare): Promise<readonly PreparedMedia[]>;
  releaseMedia(message: { readonly hold: number }): void;
  /**
   * Returns the pooled outputs of the prompts, when all are computed: Capabilities.pooledLength floats for each prompt, with
   * pooling `tokens` for each token.
   */
  pool(message: { readonly id: number; readonly job: PoolJob }): Promise<Float32Array>;
  /** Ends sequences before the next step. `stop`: their texts contain a stop string, so the sequences count as finished. */
  cancel(message: { readonly ids: readonly number[]; readonly how?: "cancelled" | "stop" }): void;
  /**
   * Pauses or resumes sequences. A paused sequence is not scheduled, and keeps its slot only while no
   * other sequence needs the slot.
   */
  setPaused(message: { readonly ids: readonly number[]; readonly paused: boolean }): void;
  statistics(message: null): ModelStatistics;
  /** Begins to collect the inputs of the model's matrices. Throws unsupported. */
  startCalibration(message: null): CalibrationStatus | null;
  calibrationStatus(message: null): CalibrationStatus;
  /** Returns what was collected; empty: nothing is collected. */
  calibrationSums(message: null): readonly InputSums[];
  /** Loads a prepared adapter, so that jobs can use it. Throws the errors of AdapterHost.load, unsupported, conflict. */
  loadAdapter(message: AdapterToLoad): Promise<void>;
  /** Frees an adapter after its sequences have ended, then resolves. New jobs that name the adapter are rejected. */
  unloadAdapter(message: { readonly id: number }): Promise<void>;
}

/** Images, frames of videos and audio of one request. `hold`: number of the hold, chosen by the sender and unique among its holds. */
export interface MediaToPrepare {
  readonly hold: number;
  readonly client: string;
  readonly media: readonly EncodedMedia[];
}

/** A prepared adapter (engines/files/lora/) to load into a model's worker. */
export interface AdapterToLoad {
  /** Id of the adapter: greater than 0, and never reused in the same worker. */
  readonly id: number;
  readonly generation: string;
  readonly path: string;
}

/** The adapter version for which a generation holds a lease. */
export interface LeasedAdapter {
  readonly id: number;
  /** Content hash of the adapter; null: the model's fixed adapter, which requests cannot select. */
  readonly generation: string | null;
}

/** Statistics of a model: current numbers of sequences, and totals since the model was loaded. */
export interface ModelStatistics {
  readonly slots: number;
  readonly running: number;
  readonly waiting: number;
  /** Number of sequences that lost their slots because their clients did not read the earlier tokens. */
  readonly preempted: number;
  /** Preemptions of sequences whose client reads too slowly. */
  readonly preemptions: number;
  /** Preemptions because KV memory was full. */
  readonly memoryPreemptions: number;
  /** Preemptions for a client with fewer slots. */
  readonly sharePreemptions: number;
  readonly steps: number;
  /** Number of generated tokens, and of computed prompt tokens. Prompt tokens from the prefix cache are not counted. */
  readonly tokens: number;
  readonly promptTokens: number;
  /** Milliseconds spent in the engine's forward passes, and in whole steps. */
  readonly engineMs: number;
  readonly totalMs: number;
  readonly ended: EndCounts;
  readonly prefixCache: PrefixStatistics;
  /** Images and audio whose embeddings were cached or computed for another request, and those that were encoded. */
  readonly encoderCache: EncoderCacheStatistics;
  readonly kvBlocks: { readonly used: number; readonly total: number };
  /**
   * `loaded`: adapters in memory now. `switches`: number of steps with another adapter than the step
   * before; 0 if a step can mix adapters.
   */
  readonly adapters: { readonly loaded: number; readonly switches: number };
  readonly speculation: Omit<SpeculationStatistics, "acceptedAt"> & { readonly acceptedAt: readonly number[] };
  readonly latencies: readonly SeriesLatencies[];
  /** Counts of each server that a remote model lives on; absent: the model runs here. */
  readonly remote?: readonly RemoteUrlStatistics[];
}

/** Counts of one server of a remote model. */
export interface RemoteUrlStatistics {
  readonly url: string;
  /** 1: it gets requests; 0: it does not, because it has failed. */
  readonly up: number;
  /** Number of requests that it computes now. */
  readonly outstanding: number;
  readonly requests: number;
  readonly failures: number;
  /** Number of requests that it refused with 429. */
  readonly busy: number;
  /** Number of requests that were sent again after it had failed. */
  readonly retries: number;
}

/** Token latencies of the streamed responses of one series. */
export interface SeriesLatencies {
  readonly series: string;
  /** Time from the arrival of the request to its first token. */
  readonly firstToken: LatencyCounts;
  /** Time between consecutive tokens. */
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
  /** Id of the sequence. The sender chooses it; it is unique among the sender's sequences. */
  readonly id: number;
  /** Client of the request. Clients take turns for slots and for the prompt tokens of a step. */
  readonly client: string;
  readonly prompt: Int32Array;
  /** Maximum number of generated tokens, at least 1; null: until the context is full. */
  readonly maxNewTokens: number | null;
  /** Minimum number of generated tokens. Until then, end-of-generation tokens and stop tokens do not end the sequence. */
  readonly minNewTokens: number;
  readonly ignoreEos: boolean;
  /** Ids of tokens that end the sequence, in addition to the model's end-of-generation tokens. */
  readonly stopTokens: readonly number[];
  /** Tiles of images and windows of audio in the prompt, and the hold of their embeddings; absent: the prompt is only tokens. */
  readonly media?: { readonly hold: number; readonly tiles: readonly TileSpan[] };
  /** Embeddings of the tiles; the model actor adds them. */
  readonly spans?: readonly PromptSpan[];
  /** Adapter id; 0: the base model. */
  readonly adapter: number;
  readonly sampling: Sampling;
  /** Index among the choices of a request. It shifts the seed, so that choices differ. */
  readonly choice: number;
  /** Sequence breakers of the DRY penalty: a repeated sequence ends at these tokens. */
  readonly breakers: Int32Array;
  /** Priority: sequences with lower values are served first. */
  readonly priority: number;
  readonly grammar: GrammarSource | null;
  /** Number of alternatives in addition to each prompt token's own logprob; null: no logprobs of the prompt. */
  readonly promptLogprobs: number | null;
  readonly reasoningBudget: ReasoningLimit | null;
  /** Name under which the latencies of a streamed response are counted; null: not streamed. */
  readonly series: string | null;
  /** Arrival of the request, in milliseconds since 1970. */
  readonly receivedAt: number;
}

/** Default values of fields that few jobs set. */
export const jobDefaults = {
  minNewTokens: 0,
  stopTokens: [],
  priority: 0,
  grammar: null,
  promptLogprobs: null,
  reasoningBudget: null,
  series: null,
  receivedAt: 0,
} as const satisfies Partial<SequenceJob>;

/** Reasoning budget: if the output starts with `begin` and reasoning has not ended `tokens` tokens later, `end` is forced. */
export interface ReasoningLimit {
  readonly tokens: number;
  /** Tokens that begin the reasoning; empty if the reasoning starts within the prompt. */
  readonly begin: Int32Array;
  readonly end: Int32Array;
}

/** A request for the pooled outputs of prompts. */
export interface PoolJob {
  readonly client: string;
  readonly prompts: readonly Int32Array[];
  /** Adapter id; 0: the base model. */
  readonly adapter: number;
  readonly priority: number;
}

/** Channel of the token frames, on the connection between a model's worker and a consumer of tokens. */
export const tokenChannel = "tokens";

/** Output of one step, or of several short steps, for one consumer. */
export interface TokenFrame {
  /** `rowInts` integers per row: sequence id, token, flags, time since the sequence was first scheduled (in units of 10 us). */
  readonly rows: Int32Array;
  /** One record for each row with the flag `rowHasLogprobs`, in order: chosen logprob, count n, n pairs (token id, logprob). */
  readonly logprobs: Float32Array | null;
  /** Pairs (sequence id, number of prompt tokens found in the KV cache), for sequences whose first token is in this frame. */
  readonly cached: Int32Array | null;
  /** Logprobs of prompts that are completely computed, for sequences that requested these logprobs. */
  readonly prompts: readonly PromptLogprobsRecord[];
  /** Sequences that have ended with an error. */
  readonly failed: readonly { readonly id: number; readonly error: ErrorRecord }[];
}

/**
 * Logprobs of one prompt: a record of `2 + 2 * top` floats for each prompt token except the first. A record is the logprob of
 * the token, the count n, n pairs (token id, logprob), and padding.
 */
export interface PromptLogprobsRecord {
  readonly id: number;
  readonly records: Float32Array;
}

export const rowInts = 4;
/** Flag: the token is part of the text. It is not set for an end-of-generation token. */
export const rowHasToken = 1;
export const rowHasLogprobs = 2;
export const rowFinishedStop = 4;
export const rowFinishedLength = 8;

/** Seconds per unit of a row's elapsed time. */
export const elapsedUnitSeconds = 1e-5;

/** Start parameters of a model's worker. */
export interface ModelPlaceInit {
  readonly engine: EngineName;
  readonly spec: ModelSpec;
  readonly limits: SchedulerLimits;
  /** Maximum time in ms that a token waits, so that it can be sent in one frame with later tokens. */
  readonly frameIntervalMs: number;
  readonly mailboxLimit: number;
  readonly speculation: SpeculationOptions;
  /** Options of the prefix cache on disk; null: no prefixes are stored on disk. */
  readonly prefixStore: PrefixStoreOptions | null;
}

/** Start parameters of the thread of a model on other servers. */
export interface RemotePlaceInit {
  readonly settings: RemoteSettings;
  /** Path of a GGUF file with the vocabulary of the model. */
  readonly path: string;
  readonly maxModelLength: number | null;
  readonly kind: "text" | "embedding";
  readonly queueTimeoutMs: number;
  readonly maxQueue: number;
  readonly frameIntervalMs: number;
  readonly mailboxLimit: number;
}

/** Start parameters of the thread of a model on other servers that give text only. */
export interface RemoteTextPlaceInit {
  readonly settings: RemoteSettings;
  readonly queueTimeoutMs: number;
  readonly maxQueue: number;
  readonly mailboxLimit: number;
}

/**
 * Protocol of the actor `remoteText` of such a thread. The events of a call are sent on the channel `remoteTextChannel`, with the
 * stream id that the caller has chosen. Cancelling the stream cancels the request on the server.
 */
export interface RemoteTextProtocol {
  /** The events are GenerateEvents. */
  generate(message: { readonly stream: number; readonly request: GenerateRequest }): void;
}

export const remoteTextChannel = "remote-text";
/** Number of events that the reader has not taken, at which a call pauses. Both ends of the channel use it. */
export const remoteTextWindow = 64;

/** Progress report of a model's worker: while it loads, the loaded fraction; later, notices for the operator. */
export type ModelReport = number | { readonly notice: string };

/** Result of the start of a model's worker, sent when the model is loaded. */
export interface ModelPlaceReady {
  /** Facts of a diffusion model; absent: the model computes tokens. The other fields of a diffusion model say that it has no sequences. */
  readonly diffusion?: DiffusionCard;
  /** Facts of a speech model; absent: the model computes tokens. The other fields of a speech model say that it has no sequences. */
  readonly speech?: SpeechCard;
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  /** Maximum number of sequences without a slot. */
  readonly maxQueue: number;
  /** Images that the model takes; null or absent: none. */
  readonly images?: ImageSpec | null;
  /** Audio that the model takes; null or absent: none. */
  readonly audio?: AudioSpec | null;
  /**
   * Tokens of each text in `vocabularyProbes`, by the engine's tokenizer; null: a text that it reads in another way on purpose.
   * null if the engine has no tokenizer.
   */
  readonly probes: readonly (Int32Array | null)[] | null;
}

/**
 * Protocol of the actor `models` of the generation thread. It is separate from the actor `generation`, so that requests do not
 * wait while a model is attached.
 */
export interface ModelsProtocol {
  /**
   * Makes a model available: reads its vocabulary and template, and connects to its worker. Returns the parts read from files.
   */
  attachModel(message: AttachedModel): Promise<ModelFiles>;
  detachModel(message: { readonly id: string; readonly error: ErrorRecord }): void;
}

/**
 * Protocol of the actor `generation`: it requests the preparation of prompts, tracks sequences and turns tokens into events.
 */
export interface GenerationProtocol {
  /**
   * Starts a generation, without a reply. Its events, including errors, are written to stream `stream` of the events channel.
   */
  start(message: {
    readonly stream: number;
    readonly request: ResolvedRequest;
    /** Adapter of the request; null: the base model. */
    readonly adapter: LeasedAdapter | null;
  }): void;
  /** Counts the prompt tokens of a request. Throws its validation error. `task`: number for cancelTask. */
  countTokens(message: { readonly task: number; readonly request: GenerateRequest }): Promise<number>;
  convertTokens(message: { readonly task: number; readonly request: TokensRequest }): Promise<ConvertedTokens>;
  textStatistics(message: null): TextStatistics;
  /** Translates a request body with the BodyTranslators. */
  translate(message: { readonly task: number; readonly body: BodyToTranslate }): Promise<unknown>;
  embed(message: {
    readonly task: number;
    readonly request: EmbedRequest;
    /** Adapter of the request; null: the base model. */
    readonly adapter: LeasedAdapter | null;
  }): Promise<Embeddings>;
  /** Cancels a call of countTokens, convertTokens, translate or embed, which then rejects with `cancelled`. */
  cancelTask(message: { readonly task: number }): void;
}

/** Item of an event stream. `prepared`: the prompt has been tokenised and the request's content is released. */
export type GenerationEvent = GenerateEvent | { readonly type: "prepared" };

export interface AttachedModel {
  readonly id: string;
  readonly path: string;
  readonly chatTemplate: string | null;
  readonly jinjaExplicit: string | null;
  /** Texts before inputs to embed, by input type; absent: those of the model. */
  readonly prompts?: Readonly<Record<string, string>>;
  readonly ready: ModelPlaceReady;
  readonly ticket: DialTicket;
  /** Result of an earlier attach of the model; null: none. It is reused, because the files may have been deleted since then. */
  readonly files: ModelFiles | null;
}

/** The parts of a model's files that text tasks need. */
export interface ModelFiles {
  readonly head: HeadBytes;
  /** The configured chat template; null: use the model's own. */
  readonly template: string | null;
  readonly templateCapabilities: ModelTemplateCapabilities;
  readonly tokenTexts: TokenTextTable;
  readonly facts: ModelFileFacts;
}

/** Channel of the event streams, on the connection between the main thread and the generation thread. */
export const eventChannel = "events";

/** Start parameters of the generation thread. */
export interface GenerationPlaceInit {
  readonly mailboxLimit: number;
  /** Maximum number of events that the reader has not taken. Beyond it, the generation's sequences pause. */
  readonly streamWindow: number;
  readonly textTasks: TextTaskSettings;
}

/** Counts of text tasks. Totals are counted from the start of the generation thread. */
export interface TextStatistics {
  /** Current number of tasks that wait for a text worker. */
  readonly waiting: number;
  /** Total number of slow tasks. */
  readonly slow: number;
  /** Total number of tasks that were aborted, by reason. */
  readonly ended: Readonly<Record<"time" | "memory" | "crash", number>>;
}

/** A text task that was aborted. */
export interface EndedTask {
  readonly client: string;
  readonly reason: string;
}

/** Progress report of the generation thread. */
export type GenerationPlaceReport =
  | { readonly endedTask: EndedTask }
  /** State of the text workers. true: they fail to start. false: a text worker has started again. */
  | { readonly textWorkersAreDown: boolean };

/** Limits of the tasks that process text of clients. */
export interface TextTaskSettings {
  /** URL of the module that exports a TranslatorModule. */
  readonly translators: string;
  /** Number of workers for quick tasks. Slow tasks run on additional workers. */
  readonly quickWorkers: number;
  /** Maximum number of slow tasks that run at the same time. */
  readonly slowWorkers: number;
  /** Maximum number of tasks that wait. */
  readonly maxQueued: number;
  /** Maximum run time of a task in seconds. A task that takes longer is aborted. */
  readonly limitSeconds: number;
  readonly heapMiB: number;
}

/** Start parameters of the state thread. Its actors have the protocols StoredResponses, Files and Sessions. */
export interface StatePlaceInit {
  /** Folder of the stored data, created if it is missing; null: all data is kept in memory. */
  readonly folder: string | null;
  readonly mailboxLimit: number;
  readonly responses: StoreLimits;
  /** Maximum size of the contents of all files in bytes. */
  readonly maxFileContentBytes: number;
  /** Folder of skills (skills_dir); null: only uploaded skills. */
  readonly skillsFolder: string | null;
  /** Whether background responses without output whose server has ended are generated again (restart_background); absent: no. */
  readonly restartsBackground?: boolean;
  /** State shared with other replicas; null: none. The folder then has only copies of files and skills. */
  readonly shared: SharedStateInit | null;
}

/** Where replicas share their state. */
export interface SharedStateInit {
  /** Address of the Redis or Valkey server (state_url); may have a password. */
  readonly url: string;
  /** Identity of this replica, which no other has. */
  readonly replica: string;
  /** Milliseconds after the last heartbeat of a replica from which it counts as dead. */
  readonly leaseMs: number;
  /** Bucket of the contents of files (files_url), with its keys; null or absent: they are in the store. */
  readonly files?: SharedFilesInit | null;
}

export interface SharedFilesInit {
  readonly url: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

/** Result of the start of the state thread. */
export interface StatePlaceReady {
  /** Folder for the bytes of files that are about to be stored: Files.stagingFolder. */
  readonly stagingFolder: string;
  /** Skills.stagingFolder */
  readonly skillStagingFolder: string;
  /** Salt of the names of clients that replicas share; null: the state is not shared. */
  readonly clientSalt: string | null;
}

/** Start parameters of the tools thread. Its actor has the protocol Tools. */
export interface ToolsPlaceInit {
  readonly sandbox: SandboxSettings;
  /** Command of the Python interpreter; null: Python is not enabled. */
  readonly python: string | null;
  readonly shellPath: string;
  /** Parent of the private folder of this process, which contains the work folders; null: the system's temporary folder. */
  readonly workFolder: string | null;
  /**
   * Folder of the user in which the tools of all sessions work instead of folders of their own; null: none. It is never removed.
   */
  readonly userFolder: string | null;
  /** Time limits of one Python cell, and of all commands of a shell call together. */
  readonly codeTimeoutMs: number;
  readonly shellTimeoutMs: number;
  /** Folder for the copies of produced files: Files.stagingFolder. */
  readonly stagingFolder: string;
  readonly mailboxLimit: number;
}

/**
 * Start parameters that the thread receives. `folder`: the private folder, from which the thread removes files of earlier
 * threads.
 */
export interface ToolsThreadInit extends Omit<ToolsPlaceInit, "workFolder"> {
  readonly folder: string;
}

/**
 * Protocol of the actor `diffusion` of a diffusion place. The events of a call are sent on the channel `diffusionChannel`, with the
 * stream id that the caller has chosen. Cancelling the stream ends the call before the next step.
 */
export interface DiffusionProtocol {
  /** The events are ImageGenerationEvents. */
  generate(message: { readonly stream: number; readonly request: ImageGenerationRequest }): void;
}

export const diffusionChannel = "diffusion";
/** Number of events that the reader has not taken, at which a call pauses. Both ends of the channel use it. */
export const diffusionWindow = 16;

/** Start parameters of a diffusion place. */
export interface DiffusionPlaceInit {
  readonly spec: DiffusionSpec;
  readonly limits: DiffusionLimits;
  readonly mailboxLimit: number;
}

export interface DiffusionLimits {
  /** Maximum time of one image in milliseconds. */
  readonly timeoutMs: number;
  /** Maximum number of calls that wait. */
  readonly maxQueue: number;
}

/**
 * Protocol of the actor `speech` of a speech place. The events of a call are sent on the channel `speechChannel`, with the stream id
 * that the caller has chosen. Cancelling the stream ends the call.
 */
export interface SpeechProtocol {
  /** The events are SpeakEvents. */
  speak(message: { readonly stream: number; readonly request: SpeakRequest }): void;
  /** The events are TranscribeEvents. */
  transcribe(message: { readonly stream: number; readonly request: TranscribeRequest }): void;
}

export const speechChannel = "speech";
/** Number of events that the reader has not taken, at which a call pauses. Both ends of the channel use it. */
export const speechWindow = 16;

/** Start parameters of a speech place. */
export interface SpeechPlaceInit {
  readonly spec: SpeechSpec;
  readonly limits: SpeechLimits;
  readonly mailboxLimit: number;
}

export interface SpeechLimits {
  /** Maximum length of a text to speak, in characters. */
  readonly maxInputChars: number;
  /** Maximum length of the audio of one answer in seconds. */
  readonly maxSpeechSeconds: number;
  /** Maximum size of an audio file in bytes. */
  readonly maxAudioBytes: number;
  /** Maximum length of the audio of one request in seconds. */
  readonly maxAudioSeconds: number;
  /** Maximum number of calls that wait. */
  readonly maxQueue: number;
}

/** Protocol of the actor `web` on the web thread. The methods are those of Web, with ids instead of signals. */
export interface WebProtocol {
  search(message: WebCall & { readonly query: string }): Promise<readonly FoundPage[]>;
  read(message: WebCall & { readonly url: string }): Promise<PageText>;
  cancel(message: { readonly id: number }): void;
}

export interface WebCall {
  /** Id of the call, unique among the calls of the sender. */
  readonly id: number;
  readonly options: WebOptions;
  readonly client: string;
}

/** Protocol of the actor `embedder` on the main thread, which the web thread uses to rank passages. */
export interface EmbedderProtocol {
  /** Returns a vector of Euclidean length 1 for each text. */
  embed(message: {
    readonly id: number;
    readonly texts: readonly string[];
    /** What the texts are for the model. */
    readonly inputType: "query" | "document";
    readonly client: string;
  }): Promise<readonly Float32Array[]>;
  /** Cancels a call of embed, which then rejects with `cancelled`. */
  cancel(message: { readonly id: number }): void;
}

export type SearchProviderName = "duckduckgo" | "searxng" | "brave" | "tavily";

/** Start parameters of the web thread. */
export interface WebPlaceInit {
  readonly provider: {
    readonly name: SearchProviderName;
    /** Base URL; null: the provider's own. */
    readonly url: string | null;
    readonly apiKey: string | null;
  };
  /** Maximum number of results of a search. */
  readonly results: number;
  /** Whether the actor `embedder` of the main thread ranks passages. */
  readonly embeds: boolean;
  /** Folder for temporary files. */
  readonly folder: string;
  readonly mailboxLimit: number;
}
