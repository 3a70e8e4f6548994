// Instrumented inference: wraps Inference for one request. It observes the events of a generation and records the outcome in
// the exchange, so the protocol code does not have to report it. Created by the app.

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
import { type ErrorRecord, toErrorRecord } from "../../runtime/errors.ts";

/** Outcome of one inference request. */
export interface Generation {
  readonly kind: "chat" | "text_completion" | "embeddings";
  readonly finishReasons: FinishReason[];
  promptTokens: number | null;
  /** null while the generation runs, after an error, and for embeddings. */
  usage: Usage | null;
  error: ErrorRecord | null;
}

export interface GenerationHolder {
  generation: Generation | null;
}

/** Receives each batch of events. Must not throw. */
export type OnEvents = (events: readonly AgentEvent[]) => void;

export class InstrumentedInference implements Inference {
  readonly #inner: Inference;
  readonly #holder: GenerationHolder;
  readonly #onEvents: OnEvents | undefined;
  /** The agent loop, whose runs are observed like generations; null: the server has no agent loop. */
  readonly agents: Agents | null;
  /** Number of choices of the generations so far. A request with several prompts has several generations. */
  #choiceCount = 0;

  constructor(inner: Inference, agents: Agents | null, holder: GenerationHolder, onEvents?: OnEvents) {
    this.#inner = inner;
    this.#holder = holder;
    this.#onEvents = onEvents;
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
    return this.#observed(request, this.#inner.generate(request, signal, onPrepared));
  }

  #observedAgents(agents: Agents): Agents {
    return {
      groups: agents.groups,
      dispatches: agents.dispatches,
      permission: agents.permission,
      registersServerTools: agents.registersServerTools,
      // These change while the server runs.
      get serverTools() {
        return agents.serverTools;
      },
      get toolServers() {
        return agents.toolServers;
      },
      run: (request: GenerateRequest, agent: AgentOptions, signal: AbortSignal, onPrepared?: () => void) =>
        this.#observed(request, agents.run(request, agent, signal, onPrepared)),
      decide: (id, decision) => agents.decide(id, decision),
      pending: (sessionId) => agents.pending(sessionId),
      forget: (sessionId) => agents.forget(sessionId),
    };
  }

  #observed<Event extends AgentEvent>(
    { prompt, choices }: GenerateRequest,
    batches: AsyncIterable<readonly Event[]>,
  ): AsyncIterable<readonly Event[]> {
    const isChat = prompt.kind === "chat" || (prompt.kind === "sealed" && prompt.isChat);
    const firstChoice = this.#choiceCount;
    this.#choiceCount += choices;
    const earlier = firstChoice === 0 ? null : this.#holder.generation;
    const generation = earlier ?? this.#begin(isChat ? "chat" : "text_completion");
    // The callback must not reference `this`, because a background response outlives its exchange.
    const onEvents = this.#onEvents;
    return noted(batches, (events) => {
      note(generation, events, firstChoice);
      onEvents?.(events);
    });
  }

  async embed(request: EmbedRequest, signal: AbortSignal): Promise<Embeddings> {
    const generation = this.#begin("embeddings");
    try {
      const embeddings = await this.#inner.embed(request, signal);
      generation.promptTokens = embeddings.promptTokens;
      return embeddings;
    } catch (error) {
      generation.error = toErrorRecord(error);
      throw error;
    }
  }

  #begin(kind: Generation["kind"]): Generation {
    const generation = { kind, finishReasons: [], promptTokens: null, usage: null, error: null };
    this.#holder.generation = generation;
    return generation;
  }
}

function note(generation: Generation, events: readonly AgentEvent[], firstChoice: number): void {
  for (const event of events) {
    if (event.type === "finish") generation.finishReasons[firstChoice + event.choice] = event.reason;
    else if (event.type === "error") generation.error = event.error;
    else if (event.type === "done") {
      generation.usage = generation.usage === null ? event.usage : addedUsage(generation.usage, event.usage);
      generation.promptTokens = generation.usage.promptTokens;
    }
  }
}

/**
 * Calls `see` for each batch. The result is a plain iterator, because an async generator would cost several more microtask
 * turns per batch.
 */
function noted<T>(batches: AsyncIterable<T>, see: (batch: T) => void): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator]() {
      const inner = batches[Symbol.asyncIterator]();
      const pass = (result: IteratorResult<T>): IteratorResult<T> => {
        if (result.done !== true) see(result.value);
        return result;
      };
      return {
        next: () => inner.next().then(pass),
        return: () => inner.return?.() ?? Promise.resolve({ done: true, value: undefined }),
      };
    },
  };
}
