// One request from its prompt to its last event: has the prompt prepared, opens its sequences at the model, follows them, and
// ends them all however it ends (finished, cancelled, reader stalled, engine lost). Events leave through one bounded stream.
import { performance } from "node:perf_hooks";
import type { GenerateEvent, GenerateRequest, Usage } from "../../engines/generation.ts";
import type { TokenTexts } from "../../engines/text/tokenizer/token-texts.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import type { StreamWriter } from "../../runtime/actor/stream-ends.ts";
import type { Clock } from "../../runtime/clock.ts";
import { type ErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { elapsedUnitSeconds, type LeasedAdapter, type ModelProtocol, type SequenceJob } from "../messages.ts";
import type { OutputChecks, PreparedPrompt } from "../text-tasks/prepare.ts";
import type { RunPlaces } from "./generation-queue.ts";
import { BestOf } from "./output/best-of.ts";
import { Choice } from "./output/choice.ts";
import { type ChoiceEvent, EventBuffer } from "./output/event-buffer.ts";
import { answerPlan, type OutputPlan } from "./output/output-plan.ts";
import { promptLogprobs } from "./output/token-logprobs.ts";

/** The model answers between two steps, and a step of a large model on few cores can be long; so can compiling a grammar. */
const acceptTimeoutMs = 10 * 60 * 1000;

/** Takes what happens to one sequence. */
export interface SequenceSink {
  /** Its first token comes next; of so many tokens of its prompt the KV was there already. */
  onCached(tokens: number): void;
  /** The logprobs of its prompt: see PromptLogprobs. */
  onPrompt(records: Float32Array): void;
  /** `elapsed` in units of elapsedUnitSeconds; `logprobs` is null or holds this row's record from `at` on. */
  onToken(token: number, flags: number, elapsed: number, logprobs: Float32Array | null, at: number): void;
  onFailed(error: ErrorRecord): void;
}

export interface RunOptions {
  readonly request: GenerateRequest;
  /** null for the base model. */
  readonly adapter: LeasedAdapter | null;
  readonly writer: StreamWriter<GenerateEvent>;
  readonly model: {
    readonly texts: TokenTexts;
    /** Has a text worker prepare the prompt. Throws what refuses the request. */
    prepare(request: GenerateRequest, signal: AbortSignal): Promise<PreparedPrompt>;
    /** Has a text worker say why an output is not what was asked for, or null. */
    check(checks: OutputChecks, text: string, call: string | null): Promise<string | null>;
    readonly actor: Ref<ModelProtocol>;
    /** Reserves a sequence id whose tokens go to the sink. */
    open(sink: SequenceSink): number;
    readonly places: Pick<RunPlaces, "begun" | "paused" | "goesOn">;
    /** The sequence has ended, with so many tokens, or is cancelled: its tokens go nowhere. */
    close(id: number, tokenCount: number): void;
  };
  readonly clock: Clock;
  readonly stalledReaderMs: number;
  /** Called once, when it takes no more tokens. */
  readonly onClosed: () => void;
}

export class Generation {
  readonly #options: RunOptions;
  readonly #startedMs = performance.now();
  readonly #startedAt = Date.now();
  /** Sequence id -> choice, while it goes on. */
  readonly #open = new Map<number, Choice>();
  /** Sequences that were paused and have had no token since. */
  readonly #paused = new Set<number>();
  /** Every choice by index. */
  #choices: readonly Choice[] = [];
  /** Set where not all choices are returned. */
  readonly #bestOf: BestOf | null;
  #promptTokens = 0;
  #cachedTokens = 0;
  #completionTokens = 0;
  #reasoningTokens = 0;
  /** Milliseconds since 1970; 0 = not yet. */
  #queuedAt = 0;
  #firstTokenAt = 0;
  /** Until the first token, and the longest from a choice's first token to its last: choices may run one after another. */
  #promptUnits = 0;
  #completionUnits = 0;
  /** Set while the reader is behind. */
  #cancelStallTimer: (() => void) | null = null;
  /** What the model made before it heard of the pause. */
  readonly #backlog = new EventBuffer();
  readonly #preparation = new AbortController();
  #closed = false;

  constructor(options: RunOptions) {
    this.#options = options;
    const { candidates, choices } = options.request;
    this.#bestOf = candidates > choices ? new BestOf(candidates) : null;
  }

  /** Settles when its prompt is prepared, or it has ended. Never rejects. */
  async start(): Promise<void> {
    const { request, model } = this.#options;
    try {
      const prepared = await model.prepare(request, this.#preparation.signal);
      if (this.#closed) return;
      const jobs = this.#jobs(prepared);
      this.#queuedAt = this.#now();
      const accepted = model.actor.ask("generate", { jobs }, { timeoutMs: acceptTimeoutMs });
      accepted.catch((error: unknown) => this.fail(toErrorRecord(error)));
    } catch (error) {
      this.fail(toErrorRecord(error));
    }
  }

  /** The reader has caught up: the sequences go on. */
  resume(): void {
    if (!this.#cancelStallTimer) return;
    this.#cancelStallTimer();
    this.#cancelStallTimer = null;
    for (const event of this.#backlog.take()) this.#emit(event);
    if (this.#cancelStallTimer) return;
    this.#setPaused(false);
    if (this.#open.size === 0) this.#end();
  }

  /** The reader is gone. */
  cancel(): void {
    this.#close();
  }

  fail(error: ErrorRecord): void {
    if (this.#closed) return;
    this.#close();
    this.#options.writer.write({ type: "error", error });
    this.#options.writer.end();
  }

  #jobs(prepared: PreparedPrompt): SequenceJob[] {
    const { request, adapter } = this.#options;
    const { tokens } = prepared;
    this.#promptTokens = tokens.length;
    // The model has nothing to say of a first token.
    if (request.promptLogprobs !== null && tokens.length === 1) this.#tellPrompt(tokens, new Float32Array(0));
    const answer = answerPlan(prepared.answer);
    this.#choices = Array.from({ length: request.candidates }, (_, index) => this.#choice(index, tokens, answer));
    return this.#choices.map((choice, index) => ({
      ...jobOf(request, prepared),
      id: this.#openSequence(choice, index, tokens),
      choice: index,
      adapter: adapter?.id ?? 0,
      // A request has one time to its first token, however many choices.
      series: index === 0 ? request.series : null,
      // The prompt is the same for all.
      promptLogprobs: index === 0 ? request.promptLogprobs : null,
    }));
  }

  #choice(index: number, prompt: Int32Array, answer: OutputPlan): Choice {
    const { request, model } = this.#options;
    const bestOf = this.#bestOf;
    return new Choice({
      index,
      texts: model.texts,
      previousToken: prompt.at(-1) ?? null,
      stop: request.stop,
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
      // What a sink throws would end the place, and every other run with it.
      onPrompt: (records) => {
        try {
          this.#tellPrompt(prompt, records);
        } catch (error) {
          this.fail(toErrorRecord(error));
        }
      },
      onToken: (token, flags, elapsed, logprobs, at) => {
        // It has ended; these rows were on their way.
        if (!this.#open.has(id)) return;
        if (this.#paused.size > 0 && this.#paused.delete(id)) model.places.goesOn();
        if (firstUnits === null) {
          firstUnits = elapsed;
          model.places.begun();
        }
        if (this.#firstTokenAt === 0) this.#begin(elapsed);
        this.#completionUnits = Math.max(this.#completionUnits, elapsed - firstUnits);
        try {
          choice.take(token, flags, logprobs, at);
        } catch (error) {
          this.fail(toErrorRecord(error));
        }
      },
      onFailed: (error) => this.fail(error),
    });
    this.#open.set(id, choice);
    return id;
  }

  /** An output that cannot be checked is not what was asked for: its client is told why. */
  async #check({ checks }: OutputPlan, text: string, call: string | null): Promise<string | null> {
    if (checks === null) return null;
    try {
      return await this.#options.model.check(checks, text, call);
    } catch (error) {
      return `the output could not be checked: ${toErrorRecord(error).message}`;
    }
  }

  #tellPrompt(prompt: Int32Array, records: Float32Array): void {
    this.#emit({ type: "prompt", logprobs: promptLogprobs(prompt, records) });
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

  /** The model need not go on with a choice. */
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
    if (this.#paused.delete(id)) this.#options.model.places.goesOn();
    this.#options.model.close(id, choice.tokenCount);
    if (this.#open.size > 0 || this.#closed) return;
    const means = this.#choices.map(({ meanLogprob }) => meanLogprob);
    for (const event of this.#bestOf?.likeliest(this.#options.request.choices, means) ?? []) this.#emit(event);
    this.#emit({ type: "done", usage: this.#usage() });
    if (this.#backlog.isEmpty) this.#end();
  }

  /** null once it has ended. */
  #sequenceOf(index: number): number | null {
    for (const [id, choice] of this.#open) if (choice === this.#choices[index]) return id;
    return null;
  }

  #end(): void {
    this.#close();
    this.#options.writer.end();
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

  /** Milliseconds since 1970: the clock of the wall once, from there on the one that is never set. */
  #now(): number {
    return this.#startedAt + performance.now() - this.#startedMs;
  }

  #emit(event: GenerateEvent): void {
    if (this.#closed) return;
    if (this.#cancelStallTimer) this.#backlog.add(event);
    else if (!this.#options.writer.write(event)) this.#pause();
  }

  #pause(): void {
    const { clock, stalledReaderMs } = this.#options;
    this.#setPaused(true);
    this.#cancelStallTimer = clock.setTimeout(() => {
      const seconds = stalledReaderMs / 1000;
      const message = `the client read nothing for ${seconds} s (stalled_reader_secs); its generation was cancelled`;
      this.fail(toErrorRecord(new ServerError("reader_stalled", message)));
    }, stalledReaderMs);
  }

  #setPaused(paused: boolean): void {
    const { model } = this.#options;
    const ids = [...this.#open.keys()];
    if (ids.length > 0) model.actor.tell("setPaused", { ids, paused });
    if (!paused) return;
    for (const [id, { tokenCount }] of this.#open) {
      if (tokenCount === 0 || this.#paused.has(id)) continue;
      this.#paused.add(id);
      model.places.paused();
    }
  }

  /** Takes no more tokens and makes the model forget what is still going on. */
  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#preparation.abort();
    this.#cancelStallTimer?.();
    this.#cancelStallTimer = null;
    const ids = [...this.#open.keys()];
    if (ids.length > 0) this.#options.model.actor.tell("cancel", { ids });
    for (const [id, choice] of this.#open) this.#options.model.close(id, choice.tokenCount);
    this.#open.clear();
    this.#options.onClosed();
  }
}

/** What every choice is asked alike. The choices share one prompt, and so does the message on a link between threads. */
function jobOf(request: GenerateRequest, { tokens, grammar, breakers, reasoningBudget }: PreparedPrompt) {
  const { client, sampling, priority, receivedAt } = request;
  // Ranking needs the logprobs of what was chosen, whether or not the client does.
  const isRanked = request.candidates > request.choices;
  return {
    client,
    prompt: tokens,
    maxNewTokens: request.maxTokens,
    ignoreEos: request.ignoreEos,
    sampling: isRanked && sampling.topLogprobs === null ? { ...sampling, topLogprobs: 0 } : sampling,
    breakers,
    priority,
    grammar,
    reasoningBudget,
    receivedAt,
  };
}
