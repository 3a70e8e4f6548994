// Remote sequence: one sequence that an upstream server generates. It converts the events of the server's stream to rows of token
// frames (the messages that carry tokens). The local rules decide where the sequence ends: at the token limit, at end tokens, or
// where the reasoning budget forces other tokens.
import { performance } from "node:perf_hooks";
import type { UpstreamStream } from "../../engines/remote/connection.ts";
import { parsed } from "../../engines/remote/connection.ts";
import {
  type Dialect,
  type EventReader,
  UpstreamFailure,
  type UpstreamLogprobs,
  type UpstreamRequest,
} from "../../engines/remote/upstream.ts";
import type { SequenceJob } from "../messages.ts";
import type { FrameBuilder } from "../model/frame.ts";
import type { Subscriber } from "../model/sequence/generation-sequence.ts";
import { ReasoningBudget } from "../model/sequence/reasoning-budget.ts";
import type { StreamClock } from "../model/stream-latency.ts";
import type { Upstream } from "./upstream.ts";

/** Maximum number of end tokens in a request: servers that are troupes refuse more. Further end tokens take effect here only. */
const maxStopTokens = 64;

export interface SequenceLimits {
  /** Maximum number of tokens of a sequence (prompt and output). */
  readonly sequenceTokens: number;
  /** Ids of tokens that end a generation. */
  readonly endTokens: ReadonlySet<number>;
}

/** Receiver of the events of a sequence. */
export interface SequenceOwner {
  /** Returns the frame to which the sequence's tokens are added. */
  frameOf(sequence: RemoteSequence): FrameBuilder | undefined;
  /** Called when the first token has arrived. */
  onBegin(sequence: RemoteSequence): void;
  /**
   * Called when the last token of the sequence, or its end without a token, is in the frame. The stream may still send a final
   * event without tokens.
   */
  onEnd(sequence: RemoteSequence, how: "stop" | "length"): void;
  /** Called when a row was added to the frame. `tokens`: 0 for a row without a text token. */
  onRow(frame: FrameBuilder, tokens: 0 | 1): void;
  /** Called when the stream has ended, after onEnd. The slot on the server is then free. */
  onIdle(sequence: RemoteSequence): void;
  onFailure(sequence: RemoteSequence, failure: UpstreamFailure): void;
  /** Called when the upstream's stream was closed and the rest of the sequence must be requested again. */
  onContinue(sequence: RemoteSequence): void;
}

export class RemoteSequence {
  readonly live: { readonly id: number; readonly subscriber: Subscriber };
  readonly client: string;
  readonly job: SequenceJob;
  clock: StreamClock | null = null;
  /** Server that generates the sequence; null = the sequence is waiting. */
  upstream: Upstream | null = null;
  /** Number of failed attempts. */
  attempts = 0;
  /** Servers on which an attempt failed; other servers are preferred for the next attempt. */
  readonly avoided = new Set<Upstream>();
  /** Time of the server's latest event before the sequence ended, in ms of performance.now(). */
  lastMs = 0;
  /** Whether the sequence has ended, so that no more tokens are added to the frame. */
  isOver = false;
  readonly #owner: SequenceOwner;
  /** Ids of tokens that end this sequence. */
  readonly #endTokens: readonly number[];
  readonly #maxTokens: number;
  readonly #thinking: ReasoningBudget | null;
  /** Tokens after the prompt: those with which the output must begin, then all generated ones. Empty without a reasoning budget. */
  readonly #output: number[];
  #stream: UpstreamStream | null = null;
  #isPaused = false;
  #count = 0;
  #startedMs = 0;

  constructor(job: SequenceJob, subscriber: Subscriber, limits: SequenceLimits, owner: SequenceOwner) {
    this.job = job;
    this.client = job.client;
    this.live = { id: job.id, subscriber };
    this.#owner = owner;
    this.#endTokens = [...new Set([...job.stopTokens, ...(job.ignoreEos ? [] : limits.endTokens)])];
    const room = Math.max(limits.sequenceTokens - job.prompt.length, 1);
    this.#maxTokens = Math.min(job.maxNewTokens ?? room, room);
    this.#thinking = job.reasoningBudget && new ReasoningBudget(job.reasoningBudget);
    this.#output = [...(this.#thinking?.start() ?? [])];
  }

  get hasBegun(): boolean {
    return this.#count > 0;
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  get tokenCount(): number {
    return this.#count;
  }

  /** Requests the sequence, or the rest of it, from a server. Throws `unsupported` if the server cannot fulfil the request. */
  start(upstream: Upstream, dialect: Dialect, model: string): void {
    this.upstream = upstream;
    const request = this.#request(model);
    const body = dialect.body(request);
    const reader = dialect.reader(request);
    this.lastMs = performance.now();
    if (this.#startedMs === 0) this.#startedMs = this.lastMs;
    const stream: UpstreamStream = upstream.connection.stream(dialect.path, body, {
      onEvent: (data) => this.#read(data, reader),
      onEnd: () => this.#ended(),
      onFailure: (failure) => (this.isOver ? this.#owner.onIdle(this) : this.#owner.onFailure(this, failure)),
    });
    this.#stream = stream;
    stream.setPaused(this.#isPaused);
  }

  setPaused(paused: boolean): void {
    this.#isPaused = paused;
    this.lastMs = performance.now();
    this.#stream?.setPaused(paused);
    if (paused) this.clock?.pause();
  }

  /** Ends the sequence and closes the connection, which cancels it on the server. */
  close(): void {
    this.isOver = true;
    this.interrupt();
  }

  /** Closes the connection of the current attempt. */
  interrupt(): void {
    this.#stream?.close();
    this.#stream = null;
  }

  #request(model: string): UpstreamRequest {
    const { prompt, minNewTokens, ignoreEos, sampling, choice, grammar } = this.job;
    return {
      model,
      prompt: [...prompt, ...this.#output],
      maxTokens: Math.max(this.#maxTokens - this.#output.length, 1),
      minTokens: Math.max(minNewTokens - this.#output.length, 0),
      ignoreEos,
      stopTokens: this.#endTokens.slice(0, maxStopTokens),
      sampling,
      seed: sampling.seed === null ? null : sampling.seed + choice,
      grammar: grammar?.grammar ?? null,
    };
  }

  #read(data: string, reader: EventReader): void {
    const nowMs = performance.now();
    if (this.upstream !== null) this.upstream.lastEventMs = nowMs;
    if (data === "[DONE]") return;
    if (this.isOver) {
      this.#readAfterEnd(data, reader);
      return;
    }
    this.lastMs = nowMs;
    const frame = this.#owner.frameOf(this);
    if (frame === undefined) return;
    const { tokens, logprobs, end, cachedTokens } = reader.read(parsed(data));
    if (cachedTokens !== null) frame.begin(this.live.id, cachedTokens, null);
    for (let i = 0; i < tokens.length && !this.isOver; i++) {
      if (this.#take(frame, tokens[i] as number, logprobs?.[i] ?? null)) return;
    }
    if (end === null || this.isOver) return;
    frame.addEnd(this.live.id, end, this.#elapsedMs);
    this.#over(frame, end);
  }

  /** Closes the stream if the server does not know the rule that has ended the sequence: it would generate until its own limit. */
  #readAfterEnd(data: string, reader: EventReader): void {
    if (reader.read(parsed(data)).tokens.length === 0) return;
    this.interrupt();
    this.#owner.onIdle(this);
  }

  /** Processes a token. Returns true if the rest of the sequence must be requested again. */
  #take(frame: FrameBuilder, token: number, logprobs: UpstreamLogprobs | null): boolean {
    if (!this.hasBegun) this.#begin(frame);
    if (this.isOver) return false;
    this.clock?.took(1, this.lastMs);
    if (this.#endTokens.includes(token) && this.#count >= this.job.minNewTokens) {
      frame.add(this.live.id, token, "stop", this.#elapsedMs);
      this.#over(frame, "stop");
      return false;
    }
    this.#add(frame, token, logprobs);
    const forced = this.isOver ? null : (this.#thinking?.take(token) ?? null);
    if (forced === null || forced.length === 0) return false;
    for (const next of forced) if (!this.isOver) this.#add(frame, next, null);
    if (this.isOver) return false;
    this.#stream?.close();
    this.#owner.onContinue(this);
    return true;
  }

  /** Adds the tokens with which the output must begin: the server got them as a part of the prompt. */
  #begin(frame: FrameBuilder): void {
    this.#owner.onBegin(this);
    for (const forced of this.#output.splice(0)) if (!this.isOver) this.#add(frame, forced, null);
  }

  #add(frame: FrameBuilder, token: number, logprobs: UpstreamLogprobs | null): void {
    this.#count++;
    if (this.#thinking !== null) this.#output.push(token);
    const isLast = this.#count >= this.#maxTokens;
    frame.add(this.live.id, token, isLast ? "length" : "none", this.#elapsedMs);
    if (this.job.sampling.topLogprobs !== null) addLogprobs(frame, logprobs);
    this.#owner.onRow(frame, 1);
    if (isLast) this.#over(frame, "length");
  }

  #over(frame: FrameBuilder, how: "stop" | "length"): void {
    this.isOver = true;
    this.#owner.onRow(frame, 0);
    this.#owner.onEnd(this, how);
  }

  #ended(): void {
    if (this.isOver) this.#owner.onIdle(this);
    else this.#owner.onFailure(this, new UpstreamFailure("connection", "the stream ended before the sequence did"));
  }

  get #elapsedMs(): number {
    return this.lastMs - this.#startedMs;
  }
}

/** Adds the logprobs of the latest row. A forced token has no logprobs and gets 0 (certain). */
function addLogprobs(frame: FrameBuilder, logprobs: UpstreamLogprobs | null): void {
  const { chosen, top } = logprobs ?? { chosen: 0, top: [] };
  frame.addLogprobs({
    chosen,
    count: top.length,
    ids: Int32Array.from(top, ([token]) => token),
    logprobs: Float32Array.from(top, ([, logprob]) => logprob),
  });
}
