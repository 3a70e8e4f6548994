// Generation: runs a model from a prompt to finished choices. It requests the preparation of the prompt, opens a sequence for
// each candidate, and converts the sequences' tokens to events. run() settles with the result; by then, all sequences of the
// generation have ended. The caller forwards the events to a stream.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import type { FinishReason, GenerateEvent, GenerateRequest, ResolvedRequest, Usage } from "../../engines/generation.ts";
import type { PreparedMedia } from "../../engines/media/media-tokens.ts";
import type { TokenTexts } from "../../engines/text/tokenizer/token-texts.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from "../../runtime/errors.ts";
import { elapsedUnitSeconds, type LeasedAdapter, type ModelProtocol, type SequenceJobs } from "../messages.ts";
import type { OutputChecks, PreparedPrompt } from "../text-tasks/prepare.ts";
import type { QueuePlaces } from "./generation-queue.ts";
import { BestOf } from "./output/best-of.ts";
import { Choice } from "./output/choice.ts";
import type { ChoiceEvent } from "./output/event-buffer.ts";
import { answerPlan, type OutputPlan } from "./output/output-plan.ts";
import { promptLogprobs } from "./output/token-logprobs.ts";
import type { HeldMedia } from "./request-media.ts";

/**
 * Maximum time in ms until the model has queued the sequences. Long, because the model compiles a grammar before it replies, and
 * replies only between two steps.
 */
const acceptTimeoutMs = 10 * 60 * 1000;
/**
 * Maximum number of attempts to check an output, and delay in ms before the second attempt. Each further delay is longer by this
 * amount.
 */
const mostChecks = 4;
const checkRetryMs = 250;

/** Receiver of the model's reports about one sequence. */
export interface SequenceSink {
  /** Reports the number of prompt tokens found in the KV cache. Called just before the first token. */
  onCached(tokens: number): void;
  /** Reports the logprobs of the prompt: see PromptLogprobsRecord. */
  onPrompt(records: Float32Array): void;
  /**
   * Reports one generated token, or the end of the sequence without a token (see rowHasToken in `flags`). `elapsed`: time since
   * the sequence was first scheduled, in units of elapsedUnitSeconds. `logprobs`: contains the token's record at index `at`; null
   * = no logprobs.
   */
  onToken(token: number, flags: number, elapsed: number, logprobs: Float32Array | null, at: number): void;
  onFailed(error: ErrorRecord): void;
}

/** Events that a generation emits. `done` and `error` are not emitted: they are the result of run(). */
export type OutputEvent = Exclude<GenerateEvent, { readonly type: "done" | "error" }>;

export interface GenerationOptions {
  readonly request: ResolvedRequest;
  /** Adapter of the request; null = the base model. */
  readonly adapter: LeasedAdapter | null;
  readonly model: {
    readonly texts: TokenTexts;
    /** Prepares the prompt on a text worker. Throws the request's validation error. */
    prepare(request: GenerateRequest, media: readonly PreparedMedia[], signal: AbortSignal): Promise<PreparedPrompt>;
    /** Prepares the images, videos and audio of the request; null = the request has no media. Call once. */
    holdMedia(signal: AbortSignal): Promise<HeldMedia | null>;
    /** Checks an output against the request on a text worker. Returns why the output does not match; null = it matches. */
    check(checks: OutputChecks, text: string, call: string | null): Promise<string | null>;
    readonly actor: Ref<ModelProtocol>;
    /** Reserves a sequence id. The tokens of the sequence are passed to the sink. */
    open(sink: SequenceSink): number;
    readonly places: Pick<QueuePlaces, "begun" | "paused" | "resumed">;
    /**
     * Removes the sink of a sequence that has ended or was cancelled. `hasBegun`: the model has sent a token of the sequence, or
     * its end.
     */
    close(id: number, tokenCount: number, hasBegun: boolean): void;
  };
  /** Aborting this signal ends the generation: run() rejects with the signal's reason, an Error. */
  readonly signal: AbortSignal;
  /** Called when the prompt has been tokenised, so that the request's content can be freed. Not called if the preparation fails. */
  readonly onPrepared: () => void;
  /**
   * Receives the events in order. If it returns false, the sequences are paused until resume() is called. Further events may
   * arrive until the pause takes effect.
   */
  readonly emit: (event: OutputEvent) => boolean;
}

export interface GenerationResult {
  /** Finish reasons, indexed by choice. */
  readonly finishReasons: readonly FinishReason[];
  readonly usage: Usage;
}

interface Completion {
  resolve(result: GenerationResult): void;
  reject(error: unknown): void;
}

export class Generation {
  readonly #options: GenerationOptions;
  readonly #startedMs = performance.now();
  readonly #startedAt = Date.now();
  /** Choices that are still being generated, by sequence id. */
  readonly #open = new Map<number, Choice>();
  /** Ids of sequences that were paused and have not had a new token since. */
  readonly #paused = new Set<number>();
  /** Ids of sequences of which the model has sent a token, or the end without a token. */
  readonly #begun = new Set<number>();
  /** All choices, in order of their index. */
  #choices: readonly Choice[] = [];
  /** Selects the candidates to return; null = return all candidates. */
  readonly #bestOf: BestOf | null;
  readonly #finishReasons: FinishReason[] = [];
  #promptTokens = 0;
  #cachedTokens = 0;
  #completionTokens = 0;
  #reasoningTokens = 0;
  /** Times at which the sequences were queued and at which the first token arrived, in milliseconds since 1970; 0 = not yet. */
  #queuedAt = 0;
  #firstTokenAt = 0;
  /**
   * Durations in units of elapsedUnitSeconds: until the first token of the generation, and from the first to the last token of a
   * choice (the longest of all choices). Measured per choice, because choices may run one after another.
   */
  #promptUnits = 0;
  #completionUnits = 0;
  /** Images, videos and audio of the request, which the model's thread or process holds until the generation ends; null = no media. */
  #media: HeldMedia | null = null;
  /**
   * Events that wait for the logprobs of the prompt, which are emitted first; null = nothing waits. The first choice computes them, and
   * other choices may begin before it, because they find the prompt in the KV cache.
   */
  #held: OutputEvent[] | null;
  /** Whether the sequences are paused because emit() returned false. */
  #isPaused = false;
  /** Callbacks of the promise of run(); null before run() is called and after the promise has settled. */
  #completion: Completion | null = null;

  constructor(options: GenerationOptions) {
    this.#options = options;
    const { candidates, choices, promptLogprobs } = options.request;
    this.#bestOf = candidates > choices ? new BestOf(candidates) : null;
    this.#held = promptLogprobs === null ? null : [];
  }

  /** Runs the generation. Call once. Rejects with the error that ends the generation; no event follows. */
  run(): Promise<GenerationResult> {
    const { signal } = this.#options;
    return new Promise((resolve, reject) => {
      this.#completion = { resolve, reject };
      signal.addEventListener("abort", this.#aborted, { once: true });
      if (signal.aborted) this.#aborted();
      else void this.#start();
    });
  }

  /** Resumes the sequences after a pause. */
  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#tellPaused();
  }

  /** Prepares the prompt and starts the sequences. Never rejects. */
  async #start(): Promise<void> {
    const { request, model, signal, onPrepared } = this.#options;
    try {
      const media = await model.holdMedia(signal);
      if (this.#isOver) media?.release();
      if (this.#isOver) return;
      this.#media = media;
      const prepared = await model.prepare(request, media?.prepared ?? [], signal);
      if (this.#isOver) return;
      onPrepared();
      const message = this.#message(prepared, media);
      this.#queuedAt = this.#now();
      await model.actor.ask("generate", message, { timeoutMs: acceptTimeoutMs });
    } catch (error) {
      this.#fail(error);
    }
  }

  get #isOver(): boolean {
    return this.#completion === null;
  }

  readonly #aborted = (): void => this.#fail(this.#options.signal.reason);

  #fail(error: unknown): void {
    this.#close()?.reject(error);
  }

  #message(prepared: PreparedPrompt, media: HeldMedia | null): SequenceJobs {
    const { request, adapter } = this.#options;
    const { tokens } = prepared;
    this.#promptTokens = tokens.length;
    // The first token has no logprob, so the model sends no record for a prompt of one token. The event is emitted here instead.
    if (request.promptLogprobs !== null && tokens.length === 1) this.#emitPrompt(tokens, new Float32Array(0));
    const answer = answerPlan(prepared.answer);
    this.#choices = Array.from({ length: request.candidates }, (_, index) => this.#choice(index, tokens, answer));
    const shared = {
      ...sharedFields(request, prepared),
      ...(media && { media: { hold: media.hold, tiles: prepared.tiles } }),
      adapter: adapter?.id ?? 0,
    };
    const jobs = this.#choices.map((choice, index) => ({
      id: this.#openSequence(choice, index, tokens),
      choice: index,
      // Only the first choice is measured, so that the time to the first token is counted once per request.
      series: index === 0 ? request.series : null,
      // All choices have the same prompt, so the prompt's logprobs are computed only for the first choice.
      promptLogprobs: index === 0 ? request.promptLogprobs : null,
    }));
    return { shared, jobs };
  }

  #choice(index: number, prompt: Int32Array, answer: OutputPlan): Choice {
    const { request, model } = this.#options;
    const bestOf = this.#bestOf;
    return new Choice({
      index,
      texts: model.texts,
      previousToken: prompt.at(-1) ?? null,
      stop: request.stop,
      minTokens: request.minTokens,
      isEmpty: request.outputLimit === 0,
      reportsLogprobs: request.sampling.topLogprobs !== null,
      answer,
      check: (text, call) => this.#check(answer, text, call),
      emit: (event: ChoiceEvent) => (bestOf ? bestOf.keep(event) : this.#emit(event)),
      onStop: () => this.#stop(index),
      onEnd: () => this.#endChoice(index),
    });
  }

  #openSequence(choice: Choice, index: number, prompt: Int32Array): number {
    const { model } = this.#options;
    let firstUnits: number | null = null;
    const id = model.open({
      onCached: (tokens) => {
        if (index === 0) this.#cachedTokens = tokens;
      },
      // Errors are caught here, because an uncaught error would end this thread and all other generations.
      onPrompt: (records) => {
        try {
          this.#emitPrompt(prompt, records);
        } catch (error) {
          this.#fail(error);
        }
      },
      onToken: (token, flags, elapsed, logprobs, at) => {
        // The model may have sent this token before it was notified of the end of the choice.
        if (!this.#open.has(id)) return;
        // Tokens that arrive during a pause were sent before the pause, so they do not show that the sequence has resumed.
        if (!this.#isPaused && this.#paused.size > 0 && this.#paused.delete(id)) model.places.resumed();
        if (firstUnits === null) {
          firstUnits = elapsed;
          this.#begun.add(id);
          model.places.begun();
        }
        if (this.#firstTokenAt === 0) this.#begin(elapsed);
        this.#completionUnits = Math.max(this.#completionUnits, elapsed - firstUnits);
        try {
          choice.take(token, flags, logprobs, at);
        } catch (error) {
          this.#fail(error);
        }
      },
      onFailed: (error) => this.#fail(fromErrorRecord(error)),
    });
    this.#open.set(id, choice);
    return id;
  }

  /**
   * Returns why an output does not match the request; null = it matches. An output that is too large to be checked counts as a
   * mismatch. If the check fails for another reason, such as an ended thread or a busy machine, it is retried; after the last
   * attempt, the generation fails, because the output may be valid. Never rejects.
   */
  async #check({ checks }: OutputPlan, text: string, call: string | null): Promise<string | null> {
    if (checks === null) return null;
    for (let tries = 1; ; tries++) {
      try {
        return await this.#options.model.check(checks, text, call);
      } catch (error) {
        const { code, message } = toErrorRecord(error);
        if (code === "unsupported") return `the output could not be checked: ${message}`;
        if (tries >= mostChecks || this.#isOver) {
          this.#fail(error);
          return null;
        }
      }
      await sleep(tries * checkRetryMs);
    }
  }

  #emitPrompt(prompt: Int32Array, records: Float32Array): void {
    const held = this.#takeHeld();
    this.#emit({ type: "prompt", logprobs: promptLogprobs(prompt, records) });
    for (const event of held) this.#emit(event);
  }

  #begin(elapsed: number): void {
    this.#promptUnits = elapsed;
    this.#firstTokenAt = this.#now();
    const adapterGeneration = this.#options.adapter?.generation ?? null;
    this.#emit({
      type: "begin",
      promptTokens: this.#promptTokens,
      cachedTokens: this.#cachedTokens,
      ...(adapterGeneration !== null && { adapterGeneration }),
    });
  }

  /** Requests the model to stop the sequence of a choice whose text has ended. */
  #stop(index: number): void {
    const id = this.#sequenceOf(index);
    if (id !== null) this.#options.model.actor.tell("cancel", { ids: [id], how: "stop" });
  }

  #endChoice(index: number): void {
    const id = this.#sequenceOf(index);
    const choice = this.#choices[index];
    if (id === null || choice === undefined) return;
    this.#completionTokens += choice.tokenCount;
    this.#reasoningTokens += choice.reasoningTokenCount;
    this.#open.delete(id);
    if (this.#paused.delete(id)) this.#options.model.places.resumed();
    this.#options.model.close(id, choice.tokenCount, this.#begun.has(id));
    if (this.#open.size === 0) this.#complete();
  }

  #complete(): void {
    if (this.#isOver) return;
    for (const event of this.#takeHeld()) this.#emit(event);
    const means = this.#choices.map(({ meanLogprob }) => meanLogprob);
    for (const event of this.#bestOf?.likeliest(this.#options.request.choices, means) ?? []) this.#emit(event);
    this.#close()?.resolve({ finishReasons: this.#finishReasons, usage: this.#usage() });
  }

  /** Returns the id of a choice's sequence; null if the choice has ended. */
  #sequenceOf(index: number): number | null {
    for (const [id, choice] of this.#open) if (choice === this.#choices[index]) return id;
    return null;
  }

  #usage(): Usage {
    const promptSeconds = this.#promptUnits * elapsedUnitSeconds;
    return {
      promptTokens: this.#promptTokens,
      cachedTokens: this.#cachedTokens,
      completionTokens: this.#completionTokens,
      reasoningTokens: this.#reasoningTokens,
      promptSeconds,
      completionSeconds: this.#completionUnits * elapsedUnitSeconds,
      totalSeconds: (performance.now() - this.#startedMs) / 1000,
      timeline: {
        startedAt: this.#startedAt,
        queuedAt: this.#queuedAt,
        scheduledAt: Math.max(this.#queuedAt, this.#firstTokenAt - promptSeconds * 1000),
        firstTokenAt: this.#firstTokenAt,
        endedAt: this.#now(),
      },
    };
  }

  /** Returns the time in milliseconds since 1970. Never decreases, because the wall clock is read only at the start. */
  #now(): number {
    return this.#startedAt + performance.now() - this.#startedMs;
  }

  #takeHeld(): readonly OutputEvent[] {
    const held = this.#held ?? [];
    this.#held = null;
    return held;
  }

  #emit(event: OutputEvent): void {
    if (this.#isOver) return;
    if (this.#held !== null) {
      this.#held.push(event);
      return;
    }
    if (event.type === "finish") this.#finishReasons[event.choice] = event.reason;
    if (this.#options.emit(event) || this.#isPaused) return;
    this.#isPaused = true;
    this.#tellPaused();
    for (const [id, { tokenCount }] of this.#open) {
      if (tokenCount === 0 || this.#paused.has(id)) continue;
      this.#paused.add(id);
      this.#options.model.places.paused();
    }
  }

  #tellPaused(): void {
    const ids = [...this.#open.keys()];
    if (ids.length > 0) this.#options.model.actor.tell("setPaused", { ids, paused: this.#isPaused });
  }

  /** Ignores further tokens and cancels the sequences that have not ended. Returns the callbacks of run(), or null if run() has settled. */
  #close(): Completion | null {
    const { model, signal } = this.#options;
    const completion = this.#completion;
    if (completion === null) return null;
    this.#completion = null;
    this.#media?.release();
    signal.removeEventListener("abort", this.#aborted);
    const ids = [...this.#open.keys()];
    if (ids.length > 0) model.actor.tell("cancel", { ids });
    for (const [id, choice] of this.#open) model.close(id, choice.tokenCount, this.#begun.has(id));
    this.#open.clear();
    return completion;
  }
}

/** Returns the fields of the jobs (SequenceJob) that are taken from the request and its prompt, and are equal for all choices. */
function sharedFields(request: ResolvedRequest, { tokens, grammar, breakers, reasoningBudget }: PreparedPrompt) {
  const { client, sampling, priority, receivedAt } = request;
  // Ranking needs the logprob of each chosen token, even if the client did not request logprobs.
  const isRanked = request.candidates > request.choices;
  return {
    client,
    prompt: tokens,
    maxNewTokens: request.outputLimit === null ? null : Math.max(request.outputLimit, 1),
    minNewTokens: request.minTokens,
    ignoreEos: request.ignoreEos,
    stopTokens: request.stopTokens,
    sampling: isRanked && sampling.topLogprobs === null ? { ...sampling, topLogprobs: 0 } : sampling,
    breakers,
    priority,
    grammar,
    reasoningBudget,
    receivedAt,
  };
}
