// Active requests: the inference requests with a generation or embedding in progress, and their token counts. Created by the
// app. InstrumentedInference adds and removes requests; the system routes list and cancel them.
import type { AgentEvent } from "../../actors/api/agent/agents.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";

/** Maximum number of requests in one list. */
export const MAX_LISTED = 1000;

/** Error of a request cancelled by POST /v1/system/requests/{request_id}/cancel. */
const cancelledByOperator: ErrorRecord = {
  code: "cancelled",
  message: "the request was cancelled at /v1/system/requests; send it again if it is still needed",
};

/**
 * Properties of a request that are known on its arrival. They are plain values, because a background response outlives its
 * exchange.
 */
export interface RequestSource {
  /** Request id, as in the header x-request-id and the access log. */
  readonly id: string;
  readonly path: string;
  /** Address of the client, as in the access log. */
  readonly client: string;
  /** Time of arrival, in milliseconds since 1970. */
  readonly receivedAt: number;
}

/** Inference request in progress: its generations (one for each prompt), or its embedding. */
export class ActiveRequest {
  readonly source: RequestSource;
  readonly model: string;
  readonly isStreamed: boolean;
  /** Total prompt tokens of the generations that have begun; null if none has begun. */
  promptTokens: number | null = null;
  /** Approximate number of generated tokens: the number of output events, about one per token. */
  completionTokens = 0;
  /** Set of all active requests. This request adds itself to the set. */
  readonly #all: Set<ActiveRequest>;
  /** Number of running generations and embeddings of this request. */
  #running = 0;
  readonly #stop = new AbortController();

  constructor(
    all: Set<ActiveRequest>,
    source: RequestSource,
    { model, series }: Pick<GenerateRequest, "model" | "series">,
  ) {
    this.#all = all;
    this.source = source;
    this.model = model;
    this.isStreamed = series !== null;
  }

  /** Aborted when the request is cancelled. */
  get cancelled(): AbortSignal {
    return this.#stop.signal;
  }

  /** Error to send to the client of a cancelled request; null if the request was not cancelled. */
  get error(): ErrorRecord | null {
    return this.#stop.signal.aborted ? cancelledByOperator : null;
  }

  cancel(): void {
    this.#stop.abort();
  }

  /** Registers the begin of a generation or embedding. Call the returned function at its end; further calls do nothing. */
  enter(): () => void {
    this.#all.add(this);
    this.#running++;
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      this.#running--;
      if (this.#running === 0) this.#all.delete(this);
    };
  }

  /** Counts the tokens of an event. Hot path: called for every event of a generation. */
  note(event: AgentEvent): void {
    if (event.type === "text" || event.type === "reasoning" || event.type === "tool_arguments") this.completionTokens++;
    else if (event.type === "begin") this.promptTokens = (this.promptTokens ?? 0) + event.promptTokens;
  }
}

export class ActiveRequests {
  readonly #all = new Set<ActiveRequest>();

  /** Creates a request. It is in the list while it has a generation or embedding in progress. */
  request(source: RequestSource, asked: Pick<GenerateRequest, "model" | "series">): ActiveRequest {
    return new ActiveRequest(this.#all, source, asked);
  }

  /** Returns up to MAX_LISTED requests, the oldest first. */
  list(): { readonly requests: readonly ActiveRequest[]; readonly hasMore: boolean } {
    const all = [...this.#all].sort((one, other) => one.source.receivedAt - other.source.receivedAt);
    return { requests: all.slice(0, MAX_LISTED), hasMore: all.length > MAX_LISTED };
  }

  /** Cancels all requests with an id (ids chosen by clients may not be unique). Returns false if there is no such request. */
  cancel(id: string): boolean {
    const named = [...this.#all].filter(({ source }) => source.id === id);
    for (const request of named) request.cancel();
    return named.length > 0;
  }
}
