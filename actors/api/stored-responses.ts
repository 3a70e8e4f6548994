// Stored responses as http/ sees them: what is kept of one, and what may be done with it. It knows nothing of what a response
// looks like: what is large is bytes, and is read in slices. Implemented by the state place; see response-store/.

/** Most bytes of one response that is kept: more than the longest request and its answer come to. */
export const maxStoredBytes = 64 * 2 ** 20;

/** Items as JSON texts in UTF-8, one behind the other. */
export interface ItemTexts {
  /** The items' ids, in their order. */
  readonly ids: readonly string[];
  /** Every item's text with one comma behind it. */
  readonly texts: Uint8Array;
  /** Where each text ends in `texts`: at its comma. */
  readonly ends: Uint32Array;
}

/** Events of a stream as they were sent, in UTF-8, from number `first` on. */
export interface KeptEvents {
  readonly first: number;
  readonly text: Uint8Array;
}

/** What may change of a response while it is generated. */
export interface ResponseUpdate {
  readonly id: string;
  /** It is being generated: more is to come. */
  readonly isRunning: boolean;
  readonly status: string;
  /** The response as it is answered, JSON in UTF-8, up to where its settings follow. */
  readonly body: Uint8Array;
  /** The same, should nobody finish it; null where it has ended. */
  readonly interrupted: Uint8Array | null;
  /** What it has answered. */
  readonly output: ItemTexts;
  /** null where they are not kept. */
  readonly events: KeptEvents | null;
}

/** What is kept of a response. */
export interface StoredResponse extends ResponseUpdate {
  /** A name for its client, who gives up its own responses first when it has most of them. */
  readonly client: string;
  /** The one it goes on from. */
  readonly previousId: string | null;
  readonly isBackground: boolean;
  /** What follows the body. */
  readonly settings: Uint8Array;
  /** What came with the request. */
  readonly input: ItemTexts;
}

/**
 * Who may still finish a response that was being generated: `here` is this process, which knows whether it does; `elsewhere` a
 * server that lives; `nobody` where its server is gone. null where it has ended.
 */
export type Runner = "here" | "elsewhere" | "nobody";

/** Some bytes that are kept. */
export interface Span {
  readonly part: number;
  readonly from: number;
  readonly to: number;
}

/** What is known of a stored response without its bytes. */
export interface FoundResponse {
  readonly id: string;
  readonly runner: Runner | null;
  readonly status: string;
  readonly isBackground: boolean;
  /** Where the response lies as it is answered. */
  readonly body: readonly Span[];
  /** The same, should nobody finish it; null where it has ended. */
  readonly interrupted: readonly Span[] | null;
  readonly events: { readonly first: number; readonly spans: readonly Span[] } | null;
}

export interface SliceRequest {
  readonly spans: readonly Span[];
  /** Bytes of the spans that come before the slice. */
  readonly at: number;
}

export interface PageRequest {
  readonly id: string;
  readonly order: "asc" | "desc";
  /** Id of the item before the page; null for the first page. */
  readonly after: string | null;
  readonly limit: number;
}

/** Some of the items that came with a request. */
export interface ItemPage {
  /** Their texts with commas between them. */
  readonly spans: readonly Span[];
  readonly firstId: string | null;
  readonly lastId: string | null;
  readonly hasMore: boolean;
}

/** A response as part of a conversation: what came, and what was answered. */
export interface Turn {
  readonly id: string;
  readonly runner: Runner | null;
  readonly items: ItemTexts;
}

/** `evicted`: there is none of that name any more, and nobody has deleted it. */
export type UpdateOutcome = "updated" | "deleted" | "evicted";

/** Every call may throw storage_unavailable: the disk cannot keep, or give back, what was asked for now. */
export interface StoredResponses {
  /** Throws invalid_value where it is too large to be kept. */
  add(response: StoredResponse): Promise<void>;
  /** Puts what has become of a response in its place, where it still has one. Throws as `add` does. */
  update(update: ResponseUpdate): Promise<UpdateOutcome>;
  find(id: string): Promise<FoundResponse | null>;
  /** False where there was none. */
  delete(id: string): Promise<boolean>;
  /** The bytes from there on, as many as one message takes; null where they are kept no longer. */
  slice(request: SliceRequest): Promise<Uint8Array | null>;
  /** null where there is no such response. Throws invalid_value where no item has the id in `after`. */
  page(request: PageRequest): Promise<ItemPage | null>;
  /** The text of an item that came or was answered; null where there is none. */
  item(request: { readonly id: string; readonly itemId: string }): Promise<readonly Span[] | null>;
  /**
   * A response and all that it goes on from, the oldest first. Throws not_found naming the one that is missing, invalid_value
   * where there are too many.
   */
  history(id: string): Promise<readonly Turn[]>;
}
