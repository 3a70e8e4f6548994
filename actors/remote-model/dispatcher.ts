// Dispatcher: queues the requests for a remote model, chooses an upstream server for each, repeats attempts that failed before
// their first token, and ends requests that take too long. It runs on the model's own thread.
import { performance } from "node:perf_hooks";
import { type RemoteSettings, UpstreamFailure } from "../../engines/remote/upstream.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { FairQueue } from "../../runtime/queues/fair-queue.ts";
import type { EndCounts, ModelStatistics, PoolJob, SequenceJob } from "../messages.ts";
import type { FrameBuilder } from "../model/frame.ts";
import type { Subscriber } from "../model/sequence/generation-sequence.ts";
import { StreamLatencies } from "../model/stream-latency.ts";
import { Subscribers } from "../model/subscribers.ts";
import { chooseUpstream } from "./choose-upstream.ts";
import { retryDelayMs } from "./failure-count.ts";
import { attemptsFailed, firstTokenTimeout, noServer, queueTimeout, refusedByServer, stalled } from "./failures.ts";
import { RemoteSequence, type SequenceLimits, type SequenceOwner } from "./remote-sequence.ts";
import { remoteStatistics } from "./remote-statistics.ts";
import type { Upstream } from "./upstream.ts";

/** Interval in ms at which time limits are checked and servers are probed. */
const tickMs = 250;
/** Maximum time in ms from the last token to the final event of a stream. After it, the stream is closed. */
const lingerMs = 2000;

export interface DispatcherOptions {
  readonly settings: RemoteSettings;
  readonly upstreams: readonly Upstream[];
  readonly limits: SequenceLimits;
  /** Maximum time in ms that a request waits for a server; 0 = no limit. */
  readonly queueTimeoutMs: number;
  /** Minimum time in ms between two frames, except frames with a first or last token. */
  readonly frameIntervalMs: number;
  /** Called when every server is down and no request runs. */
  readonly onDown: (reason: string) => void;
}

/** A sequence or an embedding request that waits for a server, or for its next attempt. */
interface Waiting {
  readonly client: string;
  readonly job: Pick<SequenceJob, "priority">;
  /** Time at which this wait began, in ms of performance.now(). A repeated attempt waits again. */
  readonly queuedMs: number;
  /** Prompt, whose first tokens determine the server. */
  readonly prompt: Int32Array;
  readonly avoided: ReadonlySet<Upstream>;
  start(upstream: Upstream): void;
  fail(error: ErrorRecord): void;
}

export class Dispatcher implements SequenceOwner {
  readonly #options: DispatcherOptions;
  readonly #subscribers: Subscribers<RemoteSequence>;
  readonly #queue = new FairQueue<Waiting>();
  readonly #entries = new Map<RemoteSequence, Waiting>();
  /** Sequences with an open stream, including sequences that have ended. */
  readonly #running = new Set<RemoteSequence>();
  /** Requests whose next attempt has a delay, with their timers. They are not in the queue yet. */
  readonly #retrying = new Map<Waiting, NodeJS.Timeout>();
  readonly #latencies = new StreamLatencies();
  readonly #ended: EndCounts = { stop: 0, length: 0, cancelled: 0, error: 0 };
  readonly #ticking: NodeJS.Timeout;
  #tokens = 0;
  #promptTokens = 0;
  #willFlush = false;
  /** Timer of the next flush; null = no timer is set. */
  #flushTimer: NodeJS.Timeout | null = null;
  #isStopped = false;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#subscribers = new Subscribers(this.slots, options.frameIntervalMs);
    this.#ticking = setInterval(() => this.#tick(), tickMs);
  }

  /** Number of sequences that all servers together process concurrently. */
  get slots(): number {
    return this.#options.upstreams.reduce((sum, { slots }) => sum + slots, 0);
  }

  /** Queues all jobs, or none if one is rejected. Throws `conflict`, `unsupported`, `model_failed`. */
  submit(subscriber: Subscriber, jobs: readonly SequenceJob[]): void {
    this.#checkRunning();
    for (const job of jobs) {
      this.#subscribers.checkFree(subscriber, job.id);
      if (job.promptLogprobs !== null && job.prompt.length > 1) throw noPromptLogprobs();
      if (job.grammar !== null && this.#found.dialect.grammar === null) throw noGrammar(job.grammar.param);
    }
    for (const job of jobs) {
      const sequence = new RemoteSequence(job, subscriber, this.#options.limits, this);
      const { series, receivedAt } = job;
      if (series !== null) {
        sequence.clock = this.#latencies.open(series, Date.now() - receivedAt, performance.now());
      }
      this.#subscribers.add(sequence);
      this.#enqueue(sequence);
    }
    this.#pump();
  }

  /** Runs an embedding job on one of the servers. Retries it as often as a sequence. */
  async run<T>(job: PoolJob, task: (upstream: Upstream) => Promise<T>, signal: AbortSignal): Promise<T> {
    const { client, hasBegun } = job;
    const [prompt = new Int32Array(0)] = job.prompts;
    const avoided = new Set<Upstream>();
    let delayMs = 0;
    for (let attempt = 1; ; attempt++) {
      this.#checkRunning();
      const upstream = await new Promise<Upstream>((resolve, reject) => {
        const fail = (error: ErrorRecord) => reject(new ServerError(error.code, error.message, error));
        const queuedMs = performance.now() + delayMs;
        const waiting: Waiting = { client, job, queuedMs, prompt, avoided, start: resolve, fail };
        const leave = () => this.#dequeue(waiting) && reject(cancelled());
        signal.addEventListener("abort", leave, { once: true });
        this.#queueAfter(delayMs, waiting, !hasBegun);
        this.#pump();
      });
      try {
        const result = await task(upstream);
        upstream.succeeded(performance.now());
        return result;
      } catch (error) {
        if (signal.aborted) throw cancelled();
        if (!(error instanceof UpstreamFailure)) throw error;
        upstream.failed(error, performance.now());
        if (error.kind === "refused") throw refusedByServer(upstream.url, error);
        if (attempt > this.#options.settings.retries) throw attemptsFailed(upstream.url, error, attempt);
        delayMs = this.#prepareRetry(attempt, upstream, avoided, error);
      } finally {
        upstream.outstanding--;
        this.#pump();
      }
    }
  }

  cancel(subscriber: Subscriber, ids: readonly number[], how: "cancelled" | "stop" = "cancelled"): void {
    for (const id of ids) {
      const sequence = this.#subscribers.find(subscriber, id);
      if (sequence === undefined) continue;
      this.#ended[how]++;
      this.#leave(sequence);
    }
    this.#pump();
  }

  setPaused(subscriber: Subscriber, ids: readonly number[], paused: boolean): void {
    for (const id of ids) this.#subscribers.find(subscriber, id)?.setPaused(paused);
  }

  drop(subscriber: Subscriber): void {
    const ids = this.#subscribers.sequencesOf(subscriber).map(({ live }) => live.id);
    this.cancel(subscriber, ids);
    this.#subscribers.drop(subscriber);
  }

  statistics(): ModelStatistics {
    return remoteStatistics({
      upstreams: this.#options.upstreams,
      slots: this.slots,
      waiting: this.#queue.size + this.#retrying.size,
      tokens: this.#tokens,
      promptTokens: this.#promptTokens,
      ended: { ...this.#ended },
      latencies: this.#latencies.snapshot(),
    });
  }

  stop(): void {
    this.#isStopped = true;
    clearInterval(this.#ticking);
    this.#failWaiting(stopping);
    for (const subscriber of this.#subscribers.all()) this.drop(subscriber);
    for (const sequence of [...this.#running]) sequence.close();
    for (const upstream of this.#options.upstreams) upstream.close();
  }

  // Implementation of SequenceOwner:

  frameOf(sequence: RemoteSequence): FrameBuilder | undefined {
    return this.#subscribers.frameOf(sequence);
  }

  onBegin({ upstream, job }: RemoteSequence): void {
    upstream?.succeeded(performance.now());
    this.#subscribers.isUrgent = true;
    this.#promptTokens += job.prompt.length;
  }

  onRow(frame: FrameBuilder, tokens: 0 | 1): void {
    this.#tokens += tokens;
    if (frame.isFull) this.#subscribers.flush();
    // A frame with a first token is sent without waiting for the timer.
    if (this.#willFlush && (this.#flushTimer === null || !this.#subscribers.isUrgent)) return;
    if (this.#flushTimer !== null) clearTimeout(this.#flushTimer);
    this.#flushTimer = null;
    this.#willFlush = true;
    // Rows of all events that have already arrived are sent together.
    setImmediate(() => this.#flush());
  }

  #flush(): void {
    const { dueInMs } = this.#subscribers;
    this.#willFlush = dueInMs > 0;
    this.#flushTimer = this.#willFlush ? setTimeout(() => this.#flush(), dueInMs) : null;
    if (!this.#willFlush) this.#subscribers.flush();
  }

  onEnd(sequence: RemoteSequence, how: "stop" | "length"): void {
    this.#ended[how]++;
    this.#subscribers.flush();
    this.#subscribers.remove(sequence);
  }

  onIdle(sequence: RemoteSequence): void {
    this.#release(sequence);
    this.#pump();
  }

  onContinue(sequence: RemoteSequence): void {
    const { upstream } = sequence;
    this.#release(sequence);
    // The rest of the sequence is requested from the same server, which has the KV cache of the prompt.
    if (upstream?.hasRoom) this.#start(sequence, upstream);
    else this.#enqueue(sequence);
    this.#pump();
  }

  onFailure(sequence: RemoteSequence, failure: UpstreamFailure): void {
    const { upstream } = sequence;
    this.#release(sequence);
    if (upstream === null) return;
    upstream.failed(failure, performance.now());
    const attempts = ++sequence.attempts;
    if (failure.kind === "refused") this.#fail(sequence, refusedByServer(upstream.url, failure));
    else if (sequence.hasBegun || attempts > this.#options.settings.retries) {
      this.#fail(sequence, attemptsFailed(upstream.url, failure, attempts, sequence.tokenCount));
    } else this.#enqueue(sequence, this.#prepareRetry(attempts, upstream, sequence.avoided, failure));
    this.#pump();
  }

  /** Notes that an attempt has failed on a server. Returns the delay in ms until the next one: 0 if there is another server. */
  #prepareRetry(attempts: number, upstream: Upstream, avoided: Set<Upstream>, failure: UpstreamFailure): number {
    upstream.counts.retries++;
    avoided.add(upstream);
    if (this.#options.upstreams.some((one) => one.isUp && !avoided.has(one))) return 0;
    avoided.clear();
    return retryDelayMs(attempts, failure);
  }

  #enqueue(sequence: RemoteSequence, delayMs = 0): void {
    const { client, job, avoided } = sequence;
    const entry: Waiting = {
      ...{ client, job, avoided, prompt: job.prompt, queuedMs: performance.now() + delayMs },
      start: (upstream) => {
        this.#entries.delete(sequence);
        // #start increments `outstanding` itself.
        upstream.outstanding--;
        this.#start(sequence, upstream);
      },
      fail: (error) => {
        this.#entries.delete(sequence);
        this.#fail(sequence, new ServerError(error.code, error.message, error));
      },
    };
    this.#entries.set(sequence, entry);
    // Only the first choice has a queue timeout, because the other choices may have to wait until the first one ends.
    this.#queueAfter(delayMs, entry, job.choice === 0);
  }

  #queueAfter(delayMs: number, waiting: Waiting, hasLimit: boolean): void {
    if (delayMs === 0) {
      this.#queue.add(waiting, hasLimit);
      return;
    }
    const again = () => {
      this.#retrying.delete(waiting);
      this.#queue.add(waiting, hasLimit);
      this.#pump();
    };
    this.#retrying.set(waiting, setTimeout(again, delayMs));
  }

  /** Removes a request that waits. Returns false if it does not wait. */
  #dequeue(waiting: Waiting): boolean {
    clearTimeout(this.#retrying.get(waiting));
    return this.#retrying.delete(waiting) || this.#queue.remove(waiting);
  }

  #failWaiting(error: ErrorRecord): void {
    for (const waiting of [...this.#queue, ...this.#retrying.keys()]) {
      this.#dequeue(waiting);
      waiting.fail(error);
    }
  }

  /** Sends waiting requests to servers with free slots. */
  #pump(): void {
    const { upstreams, settings } = this.#options;
    while (this.#queue.size > 0 && upstreams.some(({ hasRoom }) => hasRoom)) {
      const next = this.#next();
      if (next === undefined) return;
      const others = upstreams.filter((upstream) => !next.avoided.has(upstream));
      const upstream =
        chooseUpstream(others, settings.balance, next.prompt) ??
        chooseUpstream(upstreams, settings.balance, next.prompt);
      if (upstream === null) return;
      upstream.outstanding++;
      upstream.counts.requests++;
      next.start(upstream);
    }
  }

  /** Removes and returns the next request: the one with the lowest priority value among the clients' next requests. */
  #next(): Waiting | undefined {
    let first: Waiting | undefined;
    for (const one of this.#queue.next()) if (first === undefined || one.job.priority < first.job.priority) first = one;
    const isEqual = [...this.#queue.next()].every(({ job }) => job.priority === first?.job.priority);
    if (isEqual || first === undefined) return this.#queue.take();
    this.#queue.takeAhead(first);
    return first;
  }

  #start(sequence: RemoteSequence, upstream: Upstream): void {
    const found = upstream.found;
    if (found === null) throw new Error("a server without a model gets no requests");
    upstream.outstanding++;
    this.#running.add(sequence);
    try {
      sequence.start(upstream, found.dialect, found.model.name);
    } catch (error) {
      this.#release(sequence);
      this.#fail(sequence, error);
    }
  }

  /** Frees the slot of a sequence on its server. */
  #release(sequence: RemoteSequence): void {
    if (!this.#running.delete(sequence) || sequence.upstream === null) return;
    sequence.upstream.outstanding--;
    sequence.upstream = null;
  }

  #fail(sequence: RemoteSequence, error: unknown): void {
    if (this.#subscribers.find(sequence.live.subscriber, sequence.live.id) !== sequence) return;
    this.#ended.error++;
    this.#leave(sequence);
    this.#subscribers.fail(sequence, toErrorRecord(error));
  }

  /** Removes a sequence, in any state. */
  #leave(sequence: RemoteSequence): void {
    const entry = this.#entries.get(sequence);
    if (entry !== undefined) this.#dequeue(entry);
    this.#entries.delete(sequence);
    sequence.close();
    this.#release(sequence);
    this.#subscribers.remove(sequence);
  }

  #tick(): void {
    const nowMs = performance.now();
    const { upstreams, queueTimeoutMs, onDown } = this.#options;
    for (const upstream of upstreams) void upstream.tick(nowMs).then(() => this.#pump());
    for (const sequence of [...this.#running]) this.#checkTime(sequence, nowMs);
    for (let oldest = this.#queue.oldest; oldest !== undefined && queueTimeoutMs > 0; oldest = this.#queue.oldest) {
      if (nowMs - oldest.queuedMs < queueTimeoutMs) break;
      this.#queue.remove(oldest);
      oldest.fail(queueTimeout(nowMs - oldest.queuedMs));
    }
    if (!upstreams.every(({ isDown }) => isDown)) return;
    const reason = noServer(upstreams);
    this.#failWaiting(toErrorRecord(reason));
    const isIdle = upstreams.every(({ outstanding }) => outstanding === 0);
    if (isIdle && !this.#isStopped) onDown(reason.message);
  }

  #checkTime(sequence: RemoteSequence, nowMs: number): void {
    const { firstTokenTimeoutMs, stallTimeoutMs } = this.#options.settings;
    const silentMs = nowMs - sequence.lastMs;
    if (sequence.isOver) {
      if (silentMs < lingerMs) return;
      sequence.close();
      this.onIdle(sequence);
      return;
    }
    if (sequence.isPaused || silentMs < (sequence.hasBegun ? stallTimeoutMs : firstTokenTimeoutMs)) return;
    sequence.interrupt();
    this.onFailure(sequence, sequence.hasBegun ? stalled(silentMs) : firstTokenTimeout(silentMs));
  }

  #checkRunning(): void {
    if (this.#isStopped) throw new ServerError(stopping.code, stopping.message);
    if (this.#options.upstreams.every(({ isDown }) => isDown)) throw noServer(this.#options.upstreams);
  }

  get #found() {
    const found = this.#options.upstreams.find(({ found }) => found !== null)?.found;
    if (!found) throw noServer(this.#options.upstreams);
    return found;
  }
}

const stopping: ErrorRecord = {
  code: "model_failed",
  message: "the model is being stopped; the request can be retried",
};

function cancelled(): ServerError {
  return new ServerError("cancelled", "the request was cancelled");
}

function noPromptLogprobs(): ServerError {
  const message =
    "logprobs of the prompt: the model runs on another server, which is not asked for them; remove echo or prompt_logprobs";
  return new ServerError("unsupported", message, { param: "logprobs" });
}

function noGrammar(param = "grammar"): ServerError {
  const message = `${param}: the server on which the model runs takes no grammar; remove it`;
  return new ServerError("unsupported", message, { param });
}
