// Active requests: the inference requests whose generation or embedding is in progress, with what is known of them. Created by
// the app; instrumented inference adds and removes requests, the system routes list and cancel them.
import type { AgentEvent } from "../../actors/api/agent/agents.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import type { ErrorRecord } from "../../runtime/errors.ts";

/** Maximum number of requests in one list. */
export const MAX_LISTED = 1000;

/** Error of a request that POST /v1/system/requests/{request_id}/cancel has cancelled. */
const cancelledByOperator: ErrorRecord = {
  code: "cancelled",
  message: "the request was cancelled at /v1/system/requests; send it again if it is still needed",
};

/** Facts about a request that are known on its arrival. Strings only, because a background response outlives its exchange. */
export interface RequestSource {
  /** Request id, as in the header x-request-id and the access log. */
  readonly id: string;
  readonly path: string;
  /** Address of the client, as in the access log. */
  readonly client: string;
  /** Time of arrival, in milliseconds since 1970. */
  readonly receivedAt: number;
}

/** One request: its generations (one for each prompt), or its embedding. */
export class ActiveRequest {
  readonly source: RequestSource;
  readonly model: string;
  readonly isStreamed: boolean;
  /** Prompt tokens of the generations that have begun; null: none has begun. */
  promptTokens: number | null = null;
  /** Pieces of output so far: about one for each token. */
  completionTokens = 0;
  /** Requests in progress. */
  readonly #all: Set<ActiveRequest>;
  /** Number of generations and embeddings that run. */
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

  /** Error for the client after the request was cancelled; null: it was not cancelled. */
  get error(): ErrorRecord | null {
    return this.#stop.signal.aborted ? cancelledByOperator : null;
  }

  cancel(): void {
    this.#stop.abort();
  }

  /** Notes that a generation or embedding begins. The returned function notes its end, and may be called several times. */
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

  /** Takes an event of a generation. Called for each event, so it only counts. */
  note(event: AgentEvent): void {
    if (event.type === "text" || event.type === "reasoning" || event.type === "tool_arguments") this.completionTokens++;
    else if (event.type === "begin") this.promptTokens = (this.promptTokens ?? 0) + event.promptTokens;
  }
}

export class ActiveRequests {
  readonly #all = new Set<ActiveRequest>();

  /** Creates a request. It is in the list while it generates. */
  request(source: RequestSource, asked: Pick<GenerateRequest, "model" | "series">): ActiveRequest {
    return new ActiveRequest(this.#all, source, asked);
  }

  /** Returns the requests, the oldest first; at most MAX_LISTED. */
  list(): { readonly requests: readonly ActiveRequest[]; readonly hasMore: boolean } {
    const all = [...this.#all].sort((one, other) => one.source.receivedAt - other.source.receivedAt);
    return { requests: all.slice(0, MAX_LISTED), hasMore: all.length > MAX_LISTED };
  }

  /** Cancels the requests with an id. Clients may choose ids, so several requests may have the same. False: there is none. */
  cancel(id: string): boolean {
    const named = [...this.#all].filter(({ source }) => source.id === id);
    for (const request of named) request.cancel();
    return named.length > 0;
  }
}
