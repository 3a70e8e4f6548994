// Owns every message of every actor: one protocol interface an actor, whose methods take one plain-data message. What is
// not a request and a reply travels as frames: see TokenFrame.
import type { GenerateRequest, Sampling } from "../engines/chat.ts";
import type { Capacity, EngineName, ModelCard, ModelSpec } from "../engines/engine.ts";
import type { SchedulerLimits } from "../engines/scheduler/scheduler.ts";
import type { ErrorRecord } from "../runtime/errors.ts";
import type { DialTicket } from "../runtime/thread/dial.ts";

/** The model actor: one a loaded model, on the model's own place. */
export interface ModelProtocol {
  /** Queues all jobs or none. Throws queue_full, context_length_exceeded, invalid_value, unsupported. */
  generate(message: { readonly jobs: readonly SequenceJob[] }): void;
  cancel(message: { readonly ids: readonly number[] }): void;
  /** A paused sequence is not scheduled, and keeps its slot only while nobody else waits for one. */
  setPaused(message: { readonly ids: readonly number[]; readonly paused: boolean }): void;
  statistics(message: null): ModelStatistics;
}

/** How a model is doing: sequences now, totals since it was loaded. */
export interface ModelStatistics {
  readonly slots: number;
  readonly running: number;
  readonly waiting: number;
  /** Without a slot because their readers are behind. */
  readonly parked: number;
  /** Times a paused sequence has lost its slot. */
  readonly preemptions: number;
  readonly steps: number;
  readonly tokens: number;
  /** Milliseconds inside the engine's forward pass, and in whole steps. */
  readonly engineMs: number;
  readonly totalMs: number;
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
  readonly adapter: number;
  readonly sampling: Sampling;
  /** Which of a request's n choices this is: shifts the seed. */
  readonly choice: number;
  /** Tokens that end a DRY run. */
  readonly breakers: Int32Array;
}

/** Channel of token frames on the link between a model place and a consumer. */
export const tokenChannel = "tokens";

/** What one step, or a few short ones, made for one consumer. */
export interface TokenFrame {
  /** `rowInts` ints a row: sequence id, token, flags, elapsed (10 us units since the sequence was first scheduled). */
  readonly rows: Int32Array;
  /** For each row flagged `rowHasLogprobs`, in order: chosen logprob, count n, then n pairs of (token id, logprob). */
  readonly logprobs: Float32Array | null;
  /** Sequences that ended with an error. */
  readonly failed: readonly { readonly id: number; readonly error: ErrorRecord }[];
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
}

/** What a model place answers when the model is loaded. */
export interface ModelPlaceReady {
  readonly card: ModelCard;
  readonly capacity: Capacity;
  /** Sequences that may be without a slot. */
  readonly maxQueue: number;
  /** The engine's own tokens for each text of `vocabularyProbes`; null where it has no tokenizer. */
  readonly probes: readonly Int32Array[] | null;
}

/** The models actor of the agents place: apart from the agents actor, so that no run waits while a model is attached. */
export interface ModelsProtocol {
  /** Makes a model available to runs: reads its vocabulary and template, links to its place. */
  attachModel(message: AttachedModel): void;
  detachModel(message: { readonly id: string; readonly error: ErrorRecord }): void;
}

/** The agents actor: templates, tokenises, follows a request's sequences and turns tokens into events. */
export interface AgentsProtocol {
  /** Starts a run whose events go to stream `run` of the events channel. */
  start(message: { readonly run: number; readonly request: GenerateRequest }): void;
}

export interface AttachedModel {
  readonly id: string;
  readonly path: string;
  readonly chatTemplate: string | null;
  readonly jinjaExplicit: string | null;
  readonly ready: ModelPlaceReady;
  readonly ticket: DialTicket;
}

/** Channel of event streams on the link between the front and an agents place. */
export const eventChannel = "events";

/** What an agents place is told when it starts. */
export interface AgentsPlaceInit {
  readonly mailboxLimit: number;
  /** Events a run may be ahead of its reader before its sequences pause. */
  readonly streamWindow: number;
  /** A run whose reader takes nothing for so long is cancelled. */
  readonly stalledReaderMs: number;
}
