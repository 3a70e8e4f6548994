// Instrumented inference: wraps Inference for one request. Observes the events of a generation and records the outcome in the
// exchange, so that protocol code does not have to. Keeps the request in the list of active requests, and aborts it if it is
// cancelled there. Created by the app.

import type { AgentEvent, AgentOptions, Agents } from "../../actors/api/agent/agents.ts";
import type { BodyToTranslate } from "../../actors/api/body-translators.ts";
import type { EngineMetric } from "../../actors/api/engine-metric.ts";
import type {
  ConvertedTokens,
  Embeddings,
  EmbedRequest,
  Inference,
  ModelEntry,
  ResolvedModel,
  TokensRequest,
} from "../../actors/api/inference.ts";
import type { FinishReason, GenerateEvent, GenerateRequest, Usage } from "../../engines/generation.ts";
import type { ShownTokens } from "../../engines/text/tokenizer/token-texts.ts";
import { addedUsage } from "../../engines/usage.ts";
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from "../../runtime/errors.ts";
import type { ActiveRequest } from "./active-requests.ts";

/** Outcome of one inference request. */
export interface Generation {
  readonly kind: "chat" | "text_completion" | "embeddings";
  readonly finishReasons: FinishReason[];
  promptTokens: number | null;
  /** Token usage; null while the generation runs, after an error, and for embeddings. */
  usage: Usage | null;
  error: ErrorRecord | null;
}

export interface GenerationHolder {
  generation: Generation | null;
}

/** Receives each batch of events. Must not throw. */
export type OnEvents = (events: readonly AgentEvent[]) => void;

type ErrorEvent = Extract<AgentEvent, { readonly type: "error" }>;

/** Request observed by an InstrumentedInference. */
export interface ObservedRequest {
  readonly holder: GenerationHolder;
  /** Creates the request's entry in the list of active requests; absent if there is no list. */
  readonly list?: (asked: Pick<GenerateRequest, "model" | "series">) => ActiveRequest;
  readonly onEvents?: OnEvents | undefined;
}

export class InstrumentedInference implements Inference {
  readonly #inner: Inference;
  readonly #observed: ObservedRequest;
  /** Agent loop, whose runs are observed like generations; null: the server has no agent loop. */
  readonly agents: Agents | null;
  /** Number of choices of all generations started so far. A request with several prompts has several generations. */
  #choiceCount = 0;
  /** The request's entry in the list of active requests; null if it has not been created. */
  #request: ActiveRequest | null = null;

  constructor(inner: Inference, agents: Agents | null, observed: ObservedRequest) {
    this.#inner = inner;
    this.#observed = observed;
    this.agents = agents === null ? null : this.#observedAgents(agents);
  }

  faults(): readonly string[] {
    return this.#inner.faults();
  }

  models(): readonly ModelEntry[] {
    return this.#inner.models();
  }

  resolveModel(requested: string | undefined): ResolvedModel {
    return this.#inner.resolveModel(requested);
  }

  tokenTexts(model: string): ShownTokens {
    return this.#inner.tokenTexts(model);
  }

  countTokens(request: GenerateRequest, signal: AbortSignal): Promise<number> {
    return this.#inner.countTokens(request, signal);
  }

  convertTokens(request: TokensRequest, signal: AbortSignal): Promise<ConvertedTokens> {
    return this.#inner.convertTokens(request, signal);
  }

  engineMetrics(): Promise<readonly EngineMetric[]> {
    return this.#inner.engineMetrics();
  }

  translate(message: BodyToTranslate, signal: AbortSignal): Promise<unknown> {
    return this.#inner.translate(message, signal);
  }

  generate(
    request: GenerateRequest,
    signal: AbortSignal,
    onPrepared?: () => void,
  ): AsyncIterable<readonly GenerateEvent[]> {
    return this.#watched(request, signal, (stop) => this.#inner.generate(request, stop, onPrepared));
  }

  #observedAgents(agents: Agents): Agents {
    return {
      groups: agents.groups,
      dispatches: agents.dispatches,
      permission: agents.permission,
      registersServerTools: agents.registersServerTools,
      // Getters, because these lists change while the server runs.
      get serverTools() {
        return agents.serverTools;
      },
      get toolServers() {
        return agents.toolServers;
      },
      run: (request: GenerateRequest, agent: AgentOptions, signal: AbortSignal, onPrepared?: () => void) =>
        this.#watched(request, signal, (stop) => agents.run(request, agent, stop, onPrepared)),
      decide: (id, decision) => agents.decide(id, decision),
      pending: (sessionId) => agents.pending(sessionId),
      forget: (sessionId) => agents.forget(sessionId),
    };
  }

  /** Starts a generation and observes its events. The generation also ends when the request is cancelled. */
  #watched<Event extends AgentEvent>(
    request: GenerateRequest,
    signal: AbortSignal,
    start: (stop: AbortSignal) => AsyncIterable<readonly Event[]>,
  ): AsyncIterable<readonly (Event | ErrorEvent)[]> {
    const { prompt, choices } = request;
    const isChat = prompt.kind === "chat" || (prompt.kind === "sealed" && prompt.isChat);
    const firstChoice = this.#choiceCount;
    this.#choiceCount += choices;
    const { holder, onEvents } = this.#observed;
    const earlier = firstChoice === 0 ? null : holder.generation;
    const generation = earlier ?? this.#begin(isChat ? "chat" : "text_completion");
    const entry = this.#entry(request);
    // The callback must not reference `this`, because a background response outlives its exchange.
    const note = (events: readonly AgentEvent[]): void => {
      noteAll(generation, entry, events, firstChoice);
      onEvents?.(events);
    };
    return watched(start(stopOf(signal, entry)), note, entry);
  }

  async embed(request: EmbedRequest, signal: AbortSignal): Promise<Embeddings> {
    const generation = this.#begin("embeddings");
    const entry = this.#entry({ model: request.model, series: null });
    const leave = entry?.enter();
    try {
      const embeddings = await this.#inner.embed(request, stopOf(signal, entry));
      generation.promptTokens = embeddings.promptTokens;
      return embeddings;
    } catch (thrown) {
      const cancelled = entry?.error ?? null;
      generation.error = cancelled ?? toErrorRecord(thrown);
      throw cancelled === null ? thrown : fromErrorRecord(cancelled);
    } finally {
      leave?.();
    }
  }

  #begin(kind: Generation["kind"]): Generation {
    const generation = { kind, finishReasons: [], promptTokens: null, usage: null, error: null };
    this.#observed.holder.generation = generation;
    return generation;
  }

  /** Returns the request's entry in the list of active requests; null if there is no list. */
  #entry(request: Pick<GenerateRequest, "model" | "series">): ActiveRequest | null {
    this.#request ??= this.#observed.list?.(request) ?? null;
    return this.#request;
  }
}

/** Returns a signal that is aborted when the client disconnects or the request is cancelled. */
function stopOf(signal: AbortSignal, entry: ActiveRequest | null): AbortSignal {
  return entry === null ? signal : AbortSignal.any([signal, entry.cancelled]);
}

function noteAll(
  generation: Generation,
  entry: ActiveRequest | null,
  events: readonly AgentEvent[],
  firstChoice: number,
): void {
  for (const event of events) {
    if (event.type === "finish") generation.finishReasons[firstChoice + event.choice] = event.reason;
    else if (event.type === "error") generation.error = event.error;
    else if (event.type === "done") {
      generation.usage = generation.usage === null ? event.usage : addedUsage(generation.usage, event.usage);
      generation.promptTokens = generation.usage.promptTokens;
    } else entry?.note(event);
  }
}

/**
 * Passes batches of events on, and calls `note` for each. If the request is cancelled, the last batch contains the error.
 * Returns a plain iterator, because an async generator would cost several more microtask turns per batch.
 */
function watched<Event extends AgentEvent>(
  batches: AsyncIterable<readonly Event[]>,
  note: (events: readonly AgentEvent[]) => void,
  entry: ActiveRequest | null,
): AsyncIterable<readonly (Event | ErrorEvent)[]> {
  type Result = IteratorResult<readonly (Event | ErrorEvent)[]>;
  return {
    [Symbol.asyncIterator]() {
      const inner = batches[Symbol.asyncIterator]();
      const leave = entry?.enter();
      /** Whether the event `done` or `error` has been returned. */
      let isComplete = false;
      const pass = (result: Result): Result => {
        if (result.done !== true) {
          note(result.value);
          const last = result.value.at(-1)?.type;
          isComplete ||= last === "done" || last === "error";
          return result;
        }
        leave?.();
        const error = entry?.error ?? null;
        return error === null || isComplete ? result : pass({ done: false, value: [{ type: "error", error }] });
      };
      const fail = (thrown: unknown): never => {
        leave?.();
        throw thrown;
      };
      return {
        next: () => inner.next().then(pass, fail),
        return: () => {
          leave?.();
          return inner.return?.() ?? Promise.resolve({ done: true, value: undefined });
        },
      };
    },
  };
}
