// Stored responses: the interface that http/ uses, implemented by the state place (actors/state). The format of a response is
// opaque: large content is bytes, read in slices.

/** Most bytes of one stored response: more than the longest request and its answer. */
export const maxStoredBytes = 64 * 2 ** 20;

/** Items as concatenated JSON texts in UTF-8. */
export interface ItemTexts {
  /** Ids of the items, in order. */
  readonly ids: readonly string[];
  /** Text of each item, followed by a comma. */
  readonly texts: Uint8Array;
  /** End of each text in `texts`: the offset of its comma. */
  readonly ends: Uint32Array;
}

/** Events of a stream as sent, in UTF-8, from event number `first` on. */
export interface KeptEvents {
  readonly first: number;
  readonly text: Uint8Array;
}

/** Fields of a response that change while it is generated. */
export interface ResponseUpdate {
  readonly id: string;
  /** It is still being generated. */
  readonly isRunning: boolean;
  readonly status: string;
  /** The response as answered: JSON in UTF-8, up to its settings. */
  readonly body: Uint8Array;
  /** The same for the case that its server ends first; null: it has ended. */
  readonly interrupted: Uint8Array | null;
  /** Output items. */
  readonly output: ItemTexts;
  /** null: not stored. */
  readonly events: KeptEvents | null;
}

/** A response to store. */
export interface StoredResponse extends ResponseUpdate {
  /** Name of its client: over the limits, the client with most responses loses its oldest one. */
  readonly client: string;
  /** The response that it continues. */
  readonly previousId: string | null;
  readonly isBackground: boolean;
  /** The rest of the JSON after the body. */
  readonly settings: Uint8Array;
  /** Input items of the request. */
  readonly input: ItemTexts;
}

/**
 * Process that may still finish a response: `here`: this process, which knows whether it does; `elsewhere`: another running
 * server; `nobody`: its server is gone. null: the response has ended.
 */
export type Runner = "here" | "elsewhere" | "nobody";

/** A range of stored bytes. */
export interface Span {
  readonly part: number;
  readonly from: number;
  readonly to: number;
}

/** A stored response without its bytes. */
export interface FoundResponse {
  readonly id: string;
  readonly runner: Runner | null;
  readonly status: string;
  readonly isBackground: boolean;
  /** Location of the response as answered. */
  readonly body: readonly Span[];
  /** The same for the case that its server ended first; null: it has ended. */
  readonly interrupted: readonly Span[] | null;
  readonly events: { readonly first: number; readonly spans: readonly Span[] } | null;
}

export interface SliceRequest {
  readonly spans: readonly Span[];
  /** Offset of the slice in the bytes of the spans. */
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
  /** Their texts with commas between them. */
  readonly spans: readonly Span[];
  readonly firstId: string | null;
  readonly lastId: string | null;
  readonly hasMore: boolean;
}

/** A response as part of a conversation: its input and output items. */
export interface Turn {
  readonly id: string;
  readonly runner: Runner | null;
  readonly items: ItemTexts;
}

/** `evicted`: no longer stored, although it was not deleted. */
export type UpdateOutcome = "updated" | "deleted" | "evicted";

/** Every call may throw storage_unavailable: the disk cannot be read or written now. */
export interface StoredResponses {
  /** Does nothing if another server has deleted this response. Throws invalid_value if it is too large. */
  add(response: StoredResponse): Promise<void>;
  /** Replaces the changing fields of a response, if it is still stored. Throws as `add` does. */
  update(update: ResponseUpdate): Promise<UpdateOutcome>;
  find(id: string): Promise<FoundResponse | null>;
  /** True if it was stored. */
  delete(id: string): Promise<boolean>;
  /** The next bytes, at most 256 KiB; empty at the end, null if they are no longer stored. */
  slice(request: SliceRequest): Promise<Uint8Array | null>;
  /** null: no such response. Throws invalid_value if no item has the id in `after`. */
  page(request: PageRequest): Promise<ItemPage | null>;
  /** Text of an input or output item; null: none. */
  item(request: { readonly id: string; readonly itemId: string }): Promise<readonly Span[] | null>;
  /**
   * A response and all its predecessors, the oldest first. Throws not_found with the id of a missing one, and invalid_value if they
   * are too many.
   */
  history(id: string): Promise<readonly Turn[]>;
}
