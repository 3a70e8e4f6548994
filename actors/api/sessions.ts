// Sessions: the interface that http/ and the agent loop use to keep what a conversation did on the server: the messages between
// the client's messages (tool calls and their results), and the files. The state thread implements it.
import type { ChatMessage } from "../../engines/generation.ts";

export const sessionLimits = {
  /** Maximum number of sessions; the least recently used ones are removed. */
  maxSessions: 128,
  /** Milliseconds without use after which a session is removed. */
  idleMs: 30 * 60_000,
  /** Maximum size in bytes of one session. */
  maxSessionBytes: 64 * 2 ** 20,
} as const;

/** Message of a session. */
export interface SessionMessage {
  readonly message: ChatMessage;
  /**
   * Digest of the client's message to which this message belongs (messageDigest). Consecutive messages with the same number in
   * `visible` are one message for the client: for example the calls, results and texts of one response.
   */
  readonly visible: number;
}

/** A session as the store keeps it. */
export interface Session {
  readonly id: string;
  /** Number of requests so far. */
  readonly turns: number;
  /** Digests of the conversation as the client sees it, in order. */
  readonly digests: readonly string[];
  readonly messages: readonly SessionMessage[];
  /** Base64 of PNG images that tools made. */
  readonly images: readonly string[];
  readonly videos: readonly SessionVideo[];
  /** Ids of the session's files. */
  readonly files: readonly string[];
  /** Whether the user has approved all further actions of the session. */
  readonly approvesAll: boolean;
}

export interface SessionVideo {
  readonly fps: number;
  readonly frames: readonly string[];
  readonly total_num_frames: number;
  readonly sampled_indices: readonly number[];
}

export interface Sessions {
  /** Returns a session and marks it as used; null: unknown or expired. */
  find(id: string): Promise<Session | null>;
  /**
   * Returns the session whose conversation begins the given one, with at least two messages in common; the longest if several
   * do; null: none. `client`: only sessions of this client.
   */
  match(request: { readonly client: string; readonly digests: readonly string[] }): Promise<Session | null>;
  /** Stores a session, replacing one with the same id. Resolves when it is durable. Throws storage_unavailable, invalid_value. */
  put(request: { readonly client: string; readonly session: Session }): Promise<void>;
  /** Returns whether the session existed. */
  delete(id: string): Promise<boolean>;
}
