// Stored responses: the interface that http/ uses to store and read responses. The state thread (actors/state) implements it.
// Large content is passed as bytes, which the store does not interpret, and is read in slices.

/** Maximum size of one stored response in bytes: more than the longest request with its output. */
export const maxStoredBytes = 64 * 2 ** 20;

/** Items as concatenated JSON texts in UTF-8. */
export interface ItemTexts {
  /** Ids of the items, in order. */
  readonly ids: readonly string[];
  /** Text of each item, followed by a comma. */
  readonly texts: Uint8Array;
  /** End of each text in `texts`: the byte offset of the comma after it. */
  readonly ends: Uint32Array;
}

/** Consecutive events of a stream as sent, in UTF-8. The first one has the number `first`. */
export interface KeptEvents {
  readonly first: number;
  readonly text: Uint8Array;
}

/** Fields of a response that change while it is generated. */
export interface ResponseUpdate {
  readonly id: string;
  /** Whether the response is still being generated. */
  readonly isRunning: boolean;
  readonly status: string;
  /** First part of the response's JSON in UTF-8. The second part is StoredResponse.settings. */
  readonly body: Uint8Array;
  /** Body to show if the server ends before the response is complete; null: the response is complete. */
  readonly interrupted: Uint8Array | null;
  /** Output items. */
  readonly output: ItemTexts;
  /** Beginning of the output text, for lists; null: there is none yet. */
  readonly outputStart: string | null;
  /** Events of the stream; null: the events are not stored. */
  readonly events: KeptEvents | null;
}

/** A response to store. */
export interface StoredResponse extends ResponseUpdate {
  /**
   * Name of the client. If the store is full, the client with the most responses, or with the most bytes, loses its
   * oldest response.
   */
  readonly client: string;
  /** Id of the earlier response that this response continues; null: none. */
  readonly previousId: string | null;
  readonly isBackground: boolean;
  /** Whether its events are published while it runs, for readers on other replicas; absent: no. */
  readonly isPublished?: boolean;
  /** Unix seconds. */
  readonly createdAt: number;
  readonly model: string;
  /** Beginning of the text of the user's last message in the request, for lists; null: there is none. */
  readonly inputStart: string | null;
  /** Second part of the response's JSON in UTF-8; `body` is the first part. */
  readonly settings: Uint8Array;
  /** Input items of the request. */
  readonly input: ItemTexts;
  /** What another server needs to generate the response, if this one ends before its first output; absent: it cannot. */
  readonly restart?: RestartRecord;
}

/** Request of a background response that has no output yet. */
export interface RestartRecord {
  /** Body of the request. */
  readonly request: Uint8Array;
  /** Number of servers that have ended while they generated the response. */
  readonly count: number;
}

/** A background response without output whose server has ended. The server that has claimed it is the only one that generates it. */
export interface ClaimedResponse extends RestartRecord {
  readonly id: string;
  readonly client: string;
  /** Unix seconds. */
  readonly createdAt: number;
}

/**
 * Process that generates a response. `here`: this process, even after the generation has ended if the final state could not be
 * stored. `elsewhere`: another running server, or the next one that claims it. `nobody`: a process that has ended. null: the response is
 * complete.
 */
export type Runner = "here" | "elsewhere" | "nobody";

/** A range of stored bytes. */
export interface Span {
  readonly part: number;
  readonly from: number;
  readonly to: number;
}

/** A stored response, with the locations of its bytes instead of the bytes. */
export interface FoundResponse {
  readonly id: string;
  readonly runner: Runner | null;
  /** Identity of the server that generates or has generated the response. */
  readonly owner: string;
  readonly status: string;
  readonly isBackground: boolean;
  readonly isPublished: boolean;
  /** Location of the `body` of the response. */
  readonly body: readonly Span[];
  /** Location of the body to show if the server ends before the response is complete; null: the response is complete. */
  readonly interrupted: readonly Span[] | null;
  readonly events: { readonly first: number; readonly spans: readonly Span[] } | null;
}

export interface SliceRequest {
  readonly spans: readonly Span[];
  /** Offset in bytes at which the slice starts, counted over all spans. */
  readonly at: number;
}

export interface PageRequest {
  readonly id: string;
  readonly order: "asc" | "desc";
  /** Id of the item before the page; null for the first page. */
  readonly after: string | null;
  readonly limit: number;
}

/** A page of the input items of a request. */
export interface ItemPage {
  /** Location of the texts of the items, with commas between them. */
  readonly spans: readonly Span[];
  readonly firstId: string | null;
  readonly lastId: string | null;
  readonly hasMore: boolean;
}

/** A response in a list. */
export interface ListedResponse
  extends Pick<StoredResponse, "id" | "createdAt" | "status" | "isBackground" | "inputStart" | "outputStart"> {
  /** null: an earlier version of the server stored the response without it. */
  readonly model: string | null;
  readonly runner: Runner | null;
}

export interface ListedPage {
  /** The newest response first. */
  readonly responses: readonly ListedResponse[];
  readonly hasMore: boolean;
}

/** A response as part of a conversation: its input and output items. */
export interface Turn {
  readonly id: string;
  readonly runner: Runner | null;
  readonly items: ItemTexts;
}

/** Result of an update. `evicted`: the response was removed to stay within the limits, not deleted by a client. `taken`: another server has claimed it. */
export type UpdateOutcome = "updated" | "deleted" | "evicted" | "taken";

/** Every method may throw storage_unavailable: the disk cannot be read or written now. */
export interface StoredResponses {
  /** Stores a response. Does nothing if another server has deleted it. Throws invalid_value if it is too large. */
  add(response: StoredResponse): Promise<void>;
  /** Replaces the fields that change during generation, if the response is still stored. Throws the errors of `add`. */
  update(update: ResponseUpdate): Promise<UpdateOutcome>;
  /**
   * Called before the first output of a response that was added with `restart`: no other server may generate it from now on.
   * Returns false if another one does so already, because this server did not renew its lease, or if it was deleted.
   */
  begin(id: string): Promise<boolean>;
  /** Claims at most `limit` responses that can be restarted and whose server has ended. Only if `restart_background` is set. */
  claim(limit: number): Promise<readonly ClaimedResponse[]>;
  /**
   * Ends a response that this server has claimed but cannot generate: all servers show it as interrupted. Does nothing if it has
   * ended, was deleted, or another server has claimed it.
   */
  giveUp(id: string): Promise<void>;
  /**
   * Leaves a response without output, which this server generates or has claimed, to the next server that claims it. Does nothing
   * where giveUp does nothing, and after `begin`.
   */
  release(id: string): Promise<void>;
  find(id: string): Promise<FoundResponse | null>;
  /**
   * Returns a page of all clients' responses, after the response with the id `after`. null: no response has this id.
   */
  list(request: { readonly after: string | null; readonly limit: number }): Promise<ListedPage | null>;
  /** Deletes a response. Returns whether it was stored. */
  delete(id: string): Promise<boolean>;
  /** Returns the next bytes, at most 256 KiB; empty at the end, null if the bytes are no longer stored. */
  slice(request: SliceRequest): Promise<Uint8Array | null>;
  /** Returns a page of the input items; null: no such response. Throws invalid_value if no item has the id in `after`. */
  page(request: PageRequest): Promise<ItemPage | null>;
  /** Returns the location of the text of an input or output item; null: none. */
  item(request: { readonly id: string; readonly itemId: string }): Promise<readonly Span[] | null>;
  /**
   * Returns a response and all its predecessors, the oldest first. Throws not_found with the id of a missing predecessor, and
   * invalid_value if there are too many.
   */
  history(id: string): Promise<readonly Turn[]>;
}
