// Messages of all actors: one protocol interface per actor. Each method has one parameter, a message of plain data. Tokens are
// sent as frames instead of messages; see TokenFrame.

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

/** Protocol of the actor `model`. Each loaded model has such an actor, in its own worker thread or process. */
export interface ModelProtocol {
  /** Queues all jobs, or none if one is rejected. Throws queue_full, context_length_exceeded, invalid_value, unsupported, model_failed. */
  generate(message: SequenceJobs): Promise<void>;
  /**
   * Decodes and encodes images and audio, and keeps their embeddings until releaseMedia is called with the same `hold`. Throws
   * invalid_value for a file that cannot be decoded, queue_full, unsupported.
   */
  prepareMedia(message: MediaToPrepare): Promise<readonly PreparedMedia[]>;
  releaseMedia(message: { readonly hold: number }): void;
  /**
   * Returns the pooled outputs of all prompts when they are computed: Capabilities.pooledLength floats per prompt, or per token
   * with the pooling `tokens`.
   */
  pool(message: { readonly id: number; readonly job: PoolJob }): Promise<Float32Array>;
  /** Ends sequences before the next step. `stop`: their text contains a stop string, so they count as finished, not as cancelled. */
  cancel(message: { readonly ids: readonly number[]; readonly how?: "cancelled" | "stop" }): void;
  /** Pauses or resumes sequences. A paused sequence is not scheduled, and keeps its slot only until another sequence needs it. */
  setPaused(message: { readonly ids: readonly number[]; readonly paused: boolean }): void;
  statistics(message: null): ModelStatistics;
  /**
   * Starts collecting the inputs of the model's weight matrices. Throws unsupported. Returns null if collecting needs a reload of
   * the model.
   */
  startCalibration(message: null): CalibrationStatus | null;
  calibrationStatus(message: null): CalibrationStatus;
  /** Returns the collected sums; empty = nothing was collected. */
  calibrationSums(message: null): readonly InputSums[];
  /** Loads a prepared adapter, so that jobs can use it. Throws the errors of AdapterHost.load, unsupported, conflict. */
  loadAdapter(message: AdapterToLoad): Promise<void>;
  /** Frees an adapter. Resolves after its sequences have ended. New jobs that use the adapter are rejected. */
  unloadAdapter(message: { readonly id: number }): Promise<void>;
}

/**
 * Images, video frames and audio of one request. `hold`: number that identifies their embeddings until releaseMedia is called;
 * chosen by the sender and unique among its numbers.
 */
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
  /** Content hash of the adapter; null = the model's fixed adapter, which requests cannot select. */
  readonly generation: string | null;
}

/** Statistics of a model: current numbers of sequences, and totals since the model was loaded. */
export interface ModelStatistics {
  readonly slots: number;
  readonly running: number;
  readonly waiting: number;
  /** Number of sequences that have lost their slots because their clients did not read earlier tokens. */
  readonly preempted: number;
  /** Total preemptions because a client read too slowly. */
  readonly preemptions: number;
  /** Total preemptions because KV memory was full. */
  readonly memoryPreemptions: number;
  /** Total preemptions in favour of a client with fewer slots. */
  readonly sharePreemptions: number;
  readonly steps: number;
  /** Total number of generated tokens, and of computed prompt tokens. Prompt tokens from the prefix cache are not counted. */
  readonly tokens: number;
  readonly promptTokens: number;
  /** Milliseconds spent in the engine's forward passes, and in whole steps. */
  readonly engineMs: number;
  readonly totalMs: number;
  readonly ended: EndCounts;
  readonly prefixCache: PrefixStatistics;
  /** Numbers of images and audio files whose embeddings were reused from another request, and of those that were encoded. */
  readonly encoderCache: EncoderCacheStatistics;
  readonly kvBlocks: { readonly used: number; readonly total: number };
  /**
   * `loaded`: number of adapters in memory. `switches`: number of steps that used another adapter than the step before; 0 if a
   * step can mix adapters.
   */
  readonly adapters: { readonly loaded: number; readonly switches: number };
  readonly speculation: Omit<SpeculationStatistics, "acceptedAt"> & { readonly acceptedAt: readonly number[] };
  readonly latencies: readonly SeriesLatencies[];
  /** Counters of each upstream server of a remote model; absent = the model runs on this machine. */
  readonly remote?: readonly RemoteUrlStatistics[];
}

/** Counters of one upstream server of a remote model. */
export interface RemoteUrlStatistics {
  readonly url: string;
  /** 1 = the server gets requests; 0 = it does not, because it has failed. */
  readonly up: number;
  /** Number of requests that the server is currently processing. */
  readonly outstanding: number;
  readonly requests: number;
  readonly failures: number;
  /** Number of requests that the server rejected with status 429. */
  readonly busy: number;
  /** Number of requests that were sent again after the server had failed. */
  readonly retries: number;
}

/** Token latencies of one series of streamed responses. */
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
  /** Client of the request. Clients take turns for slots and for the prompt tokens in a step. */
  readonly client: string;
  readonly prompt: Int32Array;
  /** Maximum number of generated tokens, at least 1; null = generate until the context is full. */
  readonly maxNewTokens: number | null;
  /** Minimum number of generated tokens. Before it is reached, end-of-generation tokens and stop tokens do not end the sequence. */
  readonly minNewTokens: number;
  readonly ignoreEos: boolean;
  /** Ids of tokens that end the sequence, in addition to the model's end-of-generation tokens. */
  readonly stopTokens: readonly number[];
  /**
   * Image tiles and audio windows in the prompt. `hold`: number that identifies their embeddings (MediaToPrepare.hold). Absent =
   * the prompt contains only tokens.
   */
  readonly media?: { readonly hold: number; readonly tiles: readonly TileSpan[] };
  /** Embeddings of the image tiles and audio windows in the prompt. The model actor adds them to the job. */
  readonly spans?: readonly PromptSpan[];
  /** Adapter id; 0 = the base model. */
  readonly adapter: number;
  readonly sampling: Sampling;
  /** Index among the choices of a request. It is added to the seed, so that choices differ. */
  readonly choice: number;
  /** Sequence breakers of the DRY penalty: tokens at which a repeated sequence ends. */
  readonly breakers: Int32Array;
  /** Priority: sequences with lower values are served first. */
  readonly priority: number;
  readonly grammar: GrammarSource | null;
  /** Number of alternatives per prompt token, in addition to the token's own logprob; null = no prompt logprobs. */
  readonly promptLogprobs: number | null;
  readonly reasoningBudget: ReasoningLimit | null;
  /** Name under which the latencies of a streamed response are counted; null = not streamed. */
  readonly series: string | null;
  /** Arrival of the request, in milliseconds since 1970. */
  readonly receivedAt: number;
}

/** Fields in which the jobs of one request differ. */
type ChoiceField = "id" | "choice" | "series" | "promptLogprobs";

/**
 * Sequences of one request. `shared`: the fields that all jobs have in common. They are sent once, because a socket would send the
 * prompt for each choice otherwise.
 */
export interface SequenceJobs {
  readonly shared: Omit<SequenceJob, ChoiceField>;
  readonly jobs: readonly Pick<SequenceJob, ChoiceField>[];
}

/** Returns the complete jobs of a message. All refer to the same prompt array. */
export function completeJobs({ shared, jobs }: SequenceJobs): SequenceJob[] {
  return jobs.map((job) => ({ ...shared, ...job }));
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

/**
 * Reasoning budget: if the output starts with `begin` and the reasoning has not ended after `tokens` tokens, the tokens `end` are
 * forced.
 */
export interface ReasoningLimit {
  readonly tokens: number;
  /** Tokens of white space, which may precede `begin`. */
  readonly blanks: Int32Array;
  /** Tokens that begin the reasoning; empty if the reasoning begins in the prompt. */
  readonly begin: Int32Array;
  readonly end: Int32Array;
}

/** A request for the pooled outputs of prompts. */
export interface PoolJob {
  readonly client: string;
  readonly prompts: readonly Int32Array[];
  /** Adapter id; 0 = the base model. */
  readonly adapter: number;
  readonly priority: number;
  /**
   * Whether an earlier job of the same request was sent. Such a job has no queue timeout, loses no places to other clients, and
   * waits while the queue is full, because a refusal would waste the work on the earlier jobs.
   */
  readonly hasBegun: boolean;
}

/** Channel of the token frames, on the connection between a model's worker and a consumer of tokens. */
export const tokenChannel = "tokens";

/** Tokens of one step, or of several short steps, for one consumer. */
export interface TokenFrame {
  /** Row of `rowInts` integers per token: sequence id, token, flags, time since the sequence was first scheduled (in units of 10 us). */
  readonly rows: Int32Array;
  /** One record per row with the flag `rowHasLogprobs`, in order: chosen logprob, count n, n pairs (token id, logprob). */
  readonly logprobs: Float32Array | null;
  /** Pairs (sequence id, number of prompt tokens found in the KV cache), for sequences whose first token is in this frame. */
  readonly cached: Int32Array | null;
  /** Logprobs of prompts that are completely computed, for sequences that requested them. */
  readonly prompts: readonly PromptLogprobsRecord[];
  /** Sequences that have ended with an error. */
  readonly failed: readonly { readonly id: number; readonly error: ErrorRecord }[];
}

/**
 * Logprobs of one prompt: a record of `2 + 2 * top` floats for each prompt token except the first. A record consists of the
 * token's logprob, the count n, n pairs (token id, logprob), and padding.
 */
export interface PromptLogprobsRecord {
  readonly id: number;
  readonly records: Float32Array;
}

export const rowInts = 4;
/** Flag: the token is part of the text. Not set for an end-of-generation token. */
export const rowHasToken = 1;
export const rowHasLogprobs = 2;
export const rowFinishedStop = 4;
export const rowFinishedLength = 8;

/** Seconds per unit of the times in TokenFrame.rows. */
export const elapsedUnitSeconds = 1e-5;

/** Start parameters of a model's worker. */
export interface ModelPlaceInit {
  readonly engine: EngineName;
  readonly spec: ModelSpec;
  readonly limits: SchedulerLimits;
  /** Maximum time in ms that a token waits to be sent in one frame with later tokens. */
  readonly frameIntervalMs: number;
  readonly mailboxLimit: number;
  readonly speculation: SpeculationOptions;
  /** Options of the prefix cache on disk; null = no prefix cache on disk. */
  readonly prefixStore: PrefixStoreOptions | null;
}

/** Start parameters of the thread of a remote model, which runs on other servers. */
export interface RemotePlaceInit {
  readonly settings: RemoteSettings;
  /** Path of a GGUF file with the model's vocabulary. */
  readonly path: string;
  readonly maxModelLength: number | null;
  readonly kind: "text" | "embedding";
  readonly queueTimeoutMs: number;
  readonly maxQueue: number;
  readonly frameIntervalMs: number;
  readonly mailboxLimit: number;
}

/** Start parameters of the thread of a remote model whose servers return text only. */
export interface RemoteTextPlaceInit {
  readonly settings: RemoteSettings;
  readonly queueTimeoutMs: number;
  readonly maxQueue: number;
  readonly mailboxLimit: number;
}

/**
 * Protocol of the actor `remoteText`, of a remote model whose servers return text only. The events of a call are sent on the
 * channel `remoteTextChannel`, with the stream id that the caller has chosen. Cancelling the stream cancels the request on the
 * server.
 */
export interface RemoteTextProtocol {
  /** Generates text. The events are GenerateEvents. */
  generate(message: { readonly stream: number; readonly request: GenerateRequest }): void;
  statistics(): Promise<ModelStatistics>;
}

export const remoteTextChannel = "remote-text";
/** Number of unread events at which a call pauses. Sender and receiver of the channel must use the same number. */
export const remoteTextWindow = 64;

/** Progress report of a model's worker: the loaded fraction (0..1) while the model loads; later, notices for the operator. */
export type ModelReport = number | { readonly notice: string };

/** Result of the start of a model's worker, sent when the model is loaded. */
export interface ModelPlaceReady {
  /** Facts of a diffusion model; absent = the model generates tokens. Fields about tokens and sequences are then 0 or null. */
  readonly diffusion?: DiffusionCard;
  /** Facts of a speech model; absent = the model generates tokens. Fields about tokens and sequences are then 0 or null. */
  readonly speech?: SpeechCard;
  readonly card: ModelCard;
  readonly capacity: Capacity;
  readonly capabilities: Capabilities;
  /** Maximum number of queued sequences, which have no slot. */
  readonly maxQueue: number;
  /** Image input that the model accepts; null or absent = none. */
  readonly images?: ImageSpec | null;
  /** Audio input that the model accepts; null or absent = none. */
  readonly audio?: AudioSpec | null;
  /**
   * Tokens of each text in `vocabularyProbes` according to the engine's tokenizer. An element is null if the engine intentionally
   * tokenises that text differently. The field is null if the engine has no tokenizer.
   */
  readonly probes: readonly (Int32Array | null)[] | null;
}

/**
 * Protocol of the actor `models` of the generation thread. It is a separate actor, so that requests to the actor `generation` do
 * not wait while a model is attached.
 */
export interface ModelsProtocol {
  /**
   * Makes a model available: reads its vocabulary and template, and connects to its worker. Returns what was read from the
   * model's files.
   */
  attachModel(message: AttachedModel): Promise<ModelFiles>;
  detachModel(message: { readonly id: string; readonly error: ErrorRecord }): void;
}

/** Protocol of the actor `generation`: it requests the preparation of prompts, tracks sequences and converts tokens to events. */
export interface GenerationProtocol {
  /** Starts a generation, without a reply. Its events, including errors, are sent on the events channel with the stream id `stream`. */
  start(message: {
    readonly stream: number;
    readonly request: ResolvedRequest;
    /** Adapter of the request; null = the base model. */
    readonly adapter: LeasedAdapter | null;
  }): void;
  /** Counts the prompt tokens of a request. Throws the request's validation error. `task`: task number for cancelTask. */
  countTokens(message: { readonly task: number; readonly request: GenerateRequest }): Promise<number>;
  convertTokens(message: { readonly task: number; readonly request: TokensRequest }): Promise<ConvertedTokens>;
  textStatistics(message: null): TextStatistics;
  /** Translates a request body with the BodyTranslators. */
  translate(message: { readonly task: number; readonly body: BodyToTranslate }): Promise<unknown>;
  embed(message: {
    readonly task: number;
    readonly request: EmbedRequest;
    /** Adapter of the request; null = the base model. */
    readonly adapter: LeasedAdapter | null;
  }): Promise<Embeddings>;
  /** Cancels a call of countTokens, convertTokens, translate or embed, which then rejects with `cancelled`. */
  cancelTask(message: { readonly task: number }): void;
}

/** Item of an event stream. `prepared`: the prompt has been tokenised, and the request's content released. */
export type GenerationEvent = GenerateEvent | { readonly type: "prepared" };

export interface AttachedModel {
  readonly id: string;
  readonly path: string;
  readonly chatTemplate: string | null;
  readonly jinjaExplicit: string | null;
  /** Prompt prefixes for inputs to embed, by input type; absent = use the model's own prefixes. */
  readonly prompts?: Readonly<Record<string, string>>;
  readonly ready: ModelPlaceReady;
  readonly ticket: DialTicket;
  /** Result of an earlier attachment of the model, reused because the files may have been deleted since; null = first attachment. */
  readonly files: ModelFiles | null;
}

/** The parts of a model's files that text tasks need. */
export interface ModelFiles {
  readonly head: HeadBytes;
  /** The configured chat template; null = use the model's own. */
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
  /** Maximum number of unread events of a stream. Beyond it, the generation's sequences pause. */
  readonly streamWindow: number;
  readonly textTasks: TextTaskSettings;
}

/** Counters of text tasks. Totals start at 0 when the generation thread starts. */
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
  /** Change of the text workers' state. true = they fail to start; false = a text worker has started again. */
  | { readonly textWorkersAreDown: boolean };

/** Limits of the tasks that process client texts. */
export interface TextTaskSettings {
  /** URL of the module that exports a TranslatorModule. */
  readonly translators: string;
  /** Number of workers for quick tasks. Slow tasks run on additional workers. */
  readonly quickWorkers: number;
  /** Maximum number of slow tasks that run at the same time. */
  readonly slowWorkers: number;
  /** Maximum number of waiting tasks. */
  readonly maxQueued: number;
  /** Maximum run time of a task in seconds. A task that takes longer is aborted. */
  readonly limitSeconds: number;
  readonly heapMiB: number;
}

/** Start parameters of the state thread. Its actors have the protocols StoredResponses, Files and Sessions. */
export interface StatePlaceInit {
  /** Folder of the stored data, created if it is missing; null = all data is kept in memory. */
  readonly folder: string | null;
  readonly mailboxLimit: number;
  readonly responses: StoreLimits;
  /** Maximum total size of all file contents in bytes. */
  readonly maxFileContentBytes: number;
  /** Folder of preinstalled skills (skills_dir); null = only uploaded skills. */
  readonly skillsFolder: string | null;
  /** Whether background responses that had no output when their server ended are generated again (restart_background); absent = no. */
  readonly restartsBackground?: boolean;
  /** Whether the thread replaces an earlier one of this server, which has ended; absent = no. */
  readonly isRestart?: boolean;
  /** State shared with other replicas; null = not shared. If shared, `folder` contains only copies of files and skills. */
  readonly shared: SharedStateInit | null;
}

/** Location of the state that replicas share. */
export interface SharedStateInit {
  /** URL of the Redis or Valkey server (state_url). It may contain a password. */
  readonly url: string;
  /** Unique identity of this replica. */
  readonly replica: string;
  /** Milliseconds after its last heartbeat from which a replica counts as dead. */
  readonly leaseMs: number;
  /** Bucket for file contents (files_url), with its credentials; null or absent = file contents are in the store. */
  readonly files?: SharedFilesInit | null;
}

export interface SharedFilesInit {
  readonly url: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

/** Result of the start of the state thread. */
export interface StatePlaceReady {
  /** Folder for file contents that are about to be stored: Files.stagingFolder. */
  readonly stagingFolder: string;
  /** Folder for skill uploads and downloads: Skills.stagingFolder. */
  readonly skillStagingFolder: string;
  /** Salt for hashing client names, shared by all replicas; null = the state is not shared. */
  readonly clientSalt: string | null;
}

/** Start parameters of the tools process. Its actor has the protocol Tools. */
export interface ToolsPlaceInit {
  readonly sandbox: SandboxSettings;
  /** Command of the Python interpreter; null = Python is not enabled. */
  readonly python: string | null;
  readonly shellPath: string;
  /** Parent of the server's private folder for tools, which contains the work folders; null = the system's temporary folder. */
  readonly workFolder: string | null;
  /**
   * Folder of the user in which the tools of all sessions work; null = each session has its own work folder. The user's folder is
   * never removed.
   */
  readonly userFolder: string | null;
  /** Time limits in ms: of one Python call, and of all commands of a shell call together. */
  readonly codeTimeoutMs: number;
  readonly shellTimeoutMs: number;
  /** Folder for copies of produced files: Files.stagingFolder. */
  readonly stagingFolder: string;
  readonly mailboxLimit: number;
}

/**
 * Start parameters that the tools process receives. `folder`: the server's private folder for tools, from which the process removes
 * the files of earlier ones.
 */
export interface ToolsProcessInit extends Omit<ToolsPlaceInit, "workFolder"> {
  readonly folder: string;
}

/**
 * Protocol of the actor `diffusion` of a diffusion model's process. The events of a call are sent on the channel
 * `diffusionChannel`, with the stream id that the caller has chosen. Cancelling the stream ends the call before the next step.
 */
export interface DiffusionProtocol {
  /** Generates images. The events are ImageGenerationEvents. */
  generate(message: { readonly stream: number; readonly request: ImageGenerationRequest }): void;
}

export const diffusionChannel = "diffusion";
/** Number of unread events at which a call pauses. Sender and receiver of the channel must use the same number. */
export const diffusionWindow = 16;

/** Start parameters of a diffusion model's process. */
export interface DiffusionPlaceInit {
  readonly spec: DiffusionSpec;
  readonly limits: DiffusionLimits;
  readonly mailboxLimit: number;
}

export interface DiffusionLimits {
  /** Maximum time of one image in milliseconds. */
  readonly timeoutMs: number;
  /** Maximum number of waiting calls. */
  readonly maxQueue: number;
}

/**
 * Protocol of the actor `speech` of a speech model's process. The events of a call are sent on the channel `speechChannel`, with
 * the stream id that the caller has chosen. Cancelling the stream ends the call.
 */
export interface SpeechProtocol {
  /** Converts text to speech. The events are SpeakEvents. */
  speak(message: { readonly stream: number; readonly request: SpeakRequest }): void;
  /** Transcribes audio. The events are TranscribeEvents. */
  transcribe(message: { readonly stream: number; readonly request: TranscribeRequest }): void;
}

export const speechChannel = "speech";
/** Number of unread events at which a call pauses. Sender and receiver of the channel must use the same number. */
export const speechWindow = 16;

/** Start parameters of a speech model's process. */
export interface SpeechPlaceInit {
  readonly spec: SpeechSpec;
  readonly limits: SpeechLimits;
  readonly mailboxLimit: number;
}

export interface SpeechLimits {
  /** Maximum length of a text to speak, in characters. */
  readonly maxInputChars: number;
  /** Maximum duration of the generated audio of one request, in seconds. */
  readonly maxSpeechSeconds: number;
  /** Maximum size of an audio file in bytes. */
  readonly maxAudioBytes: number;
  /** Maximum duration of the audio of one transcription request, in seconds. */
  readonly maxAudioSeconds: number;
  /** Maximum number of waiting calls. */
  readonly maxQueue: number;
}

/** Protocol of the actor `web` on the web thread. The methods are those of the interface Web, with ids instead of abort signals. */
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
    /** Role of the texts for the embedding model. */
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
    /** Base URL; null = the provider's default. */
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
