// Stored responses: the interface that http/ uses to store and read responses. The state thread (actors/state) implements it.
// Large content is passed as opaque bytes and read in slices.

/** Maximum size of one stored response in bytes: more than the longest request with its output. */
export const maxStoredBytes = 64 * 2 ** 20;

/** Items as concatenated JSON texts in UTF-8. */
export interface ItemTexts {
  /** Ids of the items, in order. */
  readonly ids: readonly string[];
  /** Texts of all items in order, each followed by a comma. */
  readonly texts: Uint8Array;
  /** End of each text in `texts`: the byte offset of the comma that follows it. */
  readonly ends: Uint32Array;
}

/** Consecutive events of a stream as sent, in UTF-8. `first`: number of the first event. */
export interface KeptEvents {
  readonly first: number;
  readonly text: Uint8Array;
}

/**
 * Fields of a response that change while it is generated. Byte arrays should have buffers of their own (`ownBytes`): the state
 * thread receives the whole buffer of each, and keeps it for a minute if the state is shared.
 */
export interface ResponseUpdate {
  readonly id: string;
  /** Whether the response is still being generated. */
  readonly isRunning: boolean;
  readonly status: string;
  /** First part of the response's JSON in UTF-8; StoredResponse.settings is the second part. */
  readonly body: Uint8Array;
  /** Body to show if the server ends before the response is complete; null = the response is complete. */
  readonly interrupted: Uint8Array | null;
  /** Output items. */
  readonly output: ItemTexts;
  /** Beginning of the output text, shown in lists; null = no output yet. */
  readonly outputStart: string | null;
  /** Events of the stream; null = the events are not stored. */
  readonly events: KeptEvents | null;
}

/** A response to store. */
export interface StoredResponse extends ResponseUpdate {
  /**
   * Name of the client. If the store is full, the oldest response of the client with the most responses, or with the most bytes,
   * is removed.
   */
  readonly client: string;
  /** Id of the response that this response continues; null = it does not continue a response. */
  readonly previousId: string | null;
  readonly isBackground: boolean;
  /** Whether the response's events are published while it runs, for readers on other replicas; absent = no. */
  readonly isPublished?: boolean;
  /** Creation time in Unix seconds. */
  readonly createdAt: number;
  readonly model: string;
  /** Beginning of the last user message in the request, shown in lists; null = no such message. */
  readonly inputStart: string | null;
  /** Second part of the response's JSON in UTF-8; `body` is the first part. */
  readonly settings: Uint8Array;
  /** Input items of the request. */
  readonly input: ItemTexts;
  /** What another server needs to generate the response if this server ends before the first output; absent = it cannot be restarted. */
  readonly restart?: RestartRecord;
}

/** Data to restart a background response that has no output yet. */
export interface RestartRecord {
  /** Body of the request. */
  readonly request: Uint8Array;
  /** Number of servers that ended while they generated the response. */
  readonly count: number;
}

/** A background response without output whose server has ended. Only the server that has claimed it may generate it. */
export interface ClaimedResponse extends RestartRecord {
  readonly id: string;
  readonly client: string;
  /** Creation time in Unix seconds. */
  readonly createdAt: number;
}

/** Request for responses that can be restarted and whose server has ended. */
export interface ClaimRequest {
  /** Maximum number of responses to claim. */
  readonly limit: number;
  /** Ids of the background responses that this server generates, still has to store, or has claimed but not begun. */
  readonly heldIds: readonly string[];
}

/**
 * Where a response is being generated. `here`: in this process, or it was generated here and its final state could not be stored.
 * `elsewhere`: in another running server, or in the next server that claims it. `nobody`: its process has ended. null = the
 * response is complete.
 */
export type Runner = "here" | "elsewhere" | "nobody";

/** A range of stored bytes. */
export interface Span {
  readonly part: number;
  readonly from: number;
  readonly to: number;
}

/** A stored response, with the locations of its contents instead of the bytes. */
export interface FoundResponse {
  readonly id: string;
  readonly runner: Runner | null;
  /** Identity of the server that generates or has generated the response. */
  readonly owner: string;
  readonly status: string;
  readonly isBackground: boolean;
  readonly isPublished: boolean;
  /** Locations of the bytes of the response's `body`. */
  readonly body: readonly Span[];
  /** Locations of the body to show if the server ends before the response is complete; null = the response is complete. */
  readonly interrupted: readonly Span[] | null;
  readonly events: { readonly first: number; readonly spans: readonly Span[] } | null;
}

export interface SliceRequest {
  readonly spans: readonly Span[];
  /** Byte offset at which the slice starts, in the concatenated bytes of all spans. */
  readonly at: number;
}

export interface PageRequest {
  readonly id: string;
  readonly order: "asc" | "desc";
  /** Id of the last item before the page; null for the first page. */
  readonly after: string | null;
  readonly limit: number;
}

/** A page of the input items of a request. */
export interface ItemPage {
  /** Locations of the item texts, with commas between them. */
  readonly spans: readonly Span[];
  readonly firstId: string | null;
  readonly lastId: string | null;
  readonly hasMore: boolean;
}

/** A response in a list. */
export interface ListedResponse
  extends Pick<StoredResponse, "id" | "createdAt" | "status" | "isBackground" | "inputStart" | "outputStart"> {
  /** Model id; null if the response was stored by an earlier version of the server without the model. */
  readonly model: string | null;
  readonly runner: Runner | null;
}

export interface ListedPage {
  /** Responses, newest first. */
  readonly responses: readonly ListedResponse[];
  readonly hasMore: boolean;
}

/** One turn of a conversation: a response with its input and output items. */
export interface Turn {
  readonly id: string;
  readonly runner: Runner | null;
  readonly items: ItemTexts;
}

/**
 * Result of an update. `evicted`: the store removed the response to stay within its limits; `deleted`: a client deleted it.
 * `taken`: another server has claimed it.
 */
export type UpdateOutcome = "updated" | "deleted" | "evicted" | "taken";

/** Every method may throw storage_unavailable if the storage cannot be read or written. */
export interface StoredResponses {
  /** Stores a response. Does nothing if another server has deleted the response. Throws invalid_value if it is too large. */
  add(response: StoredResponse): Promise<void>;
  /** Replaces the fields that change during generation, if the response is still stored. Throws the errors of `add`. */
  update(update: ResponseUpdate): Promise<UpdateOutcome>;
  /**
   * Must be called before the first output of a response that was added with `restart`. From then on, no other server may
   * generate the response. Returns false if the response was deleted, or if another server already generates it because this
   * server did not renew its lease.
   */
  begin(id: string): Promise<boolean>;
  /**
   * Claims responses that can be restarted and whose server has ended. Also returns responses that this server has claimed before
   * but does not hold, because it did not receive the reply. Used only if `restart_background` is set.
   */
  claim(request: ClaimRequest): Promise<readonly ClaimedResponse[]>;
  /**
   * Ends a response that this server has claimed but cannot generate; all servers then show it as interrupted. Does nothing if
   * the response has ended, was deleted, or is claimed by another server.
   */
  giveUp(id: string): Promise<void>;
  /**
   * Releases a response without output that this server generates or has claimed, so that another server can claim it. Does
   * nothing after `begin`, or if the response has ended, was deleted, or is claimed by another server.
   */
  release(id: string): Promise<void>;
  find(id: string): Promise<FoundResponse | null>;
  /** Returns a page of all clients' responses, starting after the response with the id `after`; null = no response has this id. */
  list(request: { readonly after: string | null; readonly limit: number }): Promise<ListedPage | null>;
  /** Deletes a response. Returns whether it was stored. */
  delete(id: string): Promise<boolean>;
  /** Returns the next bytes, at most 256 KiB. Empty at the end; null if the bytes are no longer stored. */
  slice(request: SliceRequest): Promise<Uint8Array | null>;
  /** Returns a page of a response's input items; null = no such response. Throws invalid_value if no item has the id in `after`. */
  page(request: PageRequest): Promise<ItemPage | null>;
  /** Returns the location of the text of an input or output item; null = no such item. */
  item(request: { readonly id: string; readonly itemId: string }): Promise<readonly Span[] | null>;
  /**
   * Returns a response and all its predecessors, the oldest first. Throws not_found with the id of a missing predecessor, and
   * invalid_value if there are too many.
   */
  history(id: string): Promise<readonly Turn[]>;
}
