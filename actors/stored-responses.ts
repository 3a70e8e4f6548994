// Owns the face of the stored responses towards http/: what is kept of one, and what may be done with it. It knows nothing of
// what a response looks like. Implemented here in memory and by the state place; see response-store/.

/** Most bytes of one response that is kept: more than the longest request and its answer come to. */
export const maxStoredBytes = 64 * 2 ** 20;

/** A text; in UTF-8 where it is long. */
export type StoredText = string | Uint8Array;

/** Events of a stream as they were sent, from number `first` on. */
export interface KeptEvents {
  readonly first: number;
  readonly text: StoredText;
}

/** What is kept of a response. */
export interface StoredResponse {
  readonly id: string;
  /** The one it goes on from. */
  readonly previousId: string | null;
  /** It is being generated: more is to come. */
  readonly isRunning: boolean;
  /** As it is answered: JSON. */
  readonly body: StoredText;
  /** What it adds to the conversation: JSON, an array of the items that came and those it has answered. */
  readonly items: string;
  /** How many of the items came with the request. */
  readonly inputCount: number;
  /** null where they are not kept. */
  readonly events: KeptEvents | null;
}

/**
 * Who may still finish a response that was being generated: `here` is this process, which knows whether it does; `elsewhere` a
 * server that lives; `nobody` where its server is gone. null where it has ended.
 */
export type Runner = "here" | "elsewhere" | "nobody";

export interface FoundResponse extends Omit<StoredResponse, "isRunning"> {
  readonly runner: Runner | null;
}

/** A response as part of a conversation. */
export interface Turn {
  readonly id: string;
  readonly runner: Runner | null;
  readonly items: string;
}

/** `evicted`: there is none of that name any more, and nobody has deleted it. */
export type UpdateOutcome = "updated" | "deleted" | "evicted";

export interface StoredResponses {
  /** Throws invalid_value where it is too large to be kept. */
  add(response: StoredResponse): Promise<void>;
  /** Puts what has become of a response in its place, where it still has one. Throws as `add` does. */
  update(response: StoredResponse): Promise<UpdateOutcome>;
  get(id: string): Promise<FoundResponse | null>;
  /** False where there was none. */
  delete(id: string): Promise<boolean>;
  /**
   * A response and all that it goes on from, the oldest first. Throws not_found naming the one that is missing, invalid_value
   * where there are too many.
   */
  history(id: string): Promise<readonly Turn[]>;
}
