// Sessions: the interface that http/ and the agent loop use to store the part of a conversation that the client does not see
// (tool calls and their results, between the client's messages), and the files. The state thread implements it.
import type { ChatMessage, GenerateRequest, PromptChanges } from "../../../engines/generation.ts";

export const sessionLimits = {
  /** Maximum number of sessions. Beyond it, the least recently used ones are removed. */
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
   * Index of the client's message to which this message belongs. Consecutive messages with the same index are one message for the
   * client, for example the calls, results and texts of one response.
   */
  readonly visible: number;
}

/** A stored session. */
export interface Session {
  readonly id: string;
  /** Number of requests so far. */
  readonly turns: number;
  /** Digests of the conversation as the client sees it, in order. */
  readonly digests: readonly string[];
  readonly messages: readonly SessionMessage[];
  /** PNG images that tools produced, in base64. */
  readonly images: readonly string[];
  readonly videos: readonly SessionVideo[];
  /** Ids of the session's files. */
  readonly files: readonly string[];
  /** Whether the user has approved all further actions of the session. */
  readonly approvesAll: boolean;
}

/** State of a session during or after a request. The state thread builds the session's messages from it. */
export interface SessionUpdate {
  readonly id: string;
  readonly client: string;
  readonly turns: number;
  /** Digests of the client's messages and, if the request is complete, of the assistant's visible message. */
  readonly digests: readonly string[];
  /** Prompt of the request as the client sent it. The bytes of sealed content are transferred, not copied. */
  readonly prompt: GenerateRequest["prompt"];
  /** Changes to the messages in `prompt`: insert the messages of earlier requests that the client does not see. */
  readonly splices: PromptChanges["splices"];
  /** Messages that the request has added after the chat. For the client, they are one message. */
  readonly added: readonly ChatMessage[];
  /** Whether the messages in `added` continue the last message of the chat; false: they are a new message for the client. */
  readonly continuesAnswer: boolean;
  /** Images and videos to add to those of the session `basedOn`, and ids of all files that the request has added. */
  readonly images: readonly string[];
  readonly videos: readonly SessionVideo[];
  readonly files: readonly string[];
  readonly approvesAll: boolean;
  /**
   * Id of the stored session from which images, videos and files are taken over. Equal to `id`, or, for a branch, the id of the
   * session from which it branches; null = the session is new and takes over nothing.
   */
  readonly basedOn: string | null;
}

export interface SessionVideo {
  readonly fps: number;
  readonly frames: readonly string[];
  readonly total_num_frames: number;
  readonly sampled_indices: readonly number[];
}

/** Fields of a session that the agent loop needs: all except messages, images and videos. */
export type SessionHead = Pick<Session, "id" | "turns" | "digests" | "files" | "approvesAll">;

/** A session that matches the beginning of a conversation. */
export interface MatchedSession {
  readonly head: SessionHead;
  /** Number of messages at the start of the conversation that are also in the session. */
  readonly common: number;
  /**
   * Splices (replacements and insertions of messages) that replace the common messages with the session's messages, including
   * messages that the client does not see. If the session's last run was cut off, and the conversation contains all earlier
   * messages of the session, a splice also inserts the messages of that run.
   */
  readonly splices: PromptChanges["splices"];
  /** Ids of the tool calls in the session's most recent answer that has calls. */
  readonly lastCalls: readonly string[];
}

/** Entry of a session in a list. */
export interface ListedSession {
  readonly id: string;
  readonly turns: number;
  /** Number of messages of the conversation as the client sees it. */
  readonly messageCount: number;
  readonly fileCount: number;
  /** Time of the last use in milliseconds since 1970. */
  readonly usedAt: number;
  /** Size in bytes of the stored messages, images and videos, without files. */
  readonly bytes: number;
}

export interface SessionPage {
  /** Sessions, the most recently used first. */
  readonly sessions: readonly ListedSession[];
  readonly hasMore: boolean;
}

export interface Sessions {
  /** Returns a session and updates its time of last use; null = unknown or expired. */
  find(id: string): Promise<Session | null>;
  /** Returns a page of all clients' sessions, starting after the session with the id `after`; null = no session has this id. */
  list(request: { readonly after: string | null; readonly limit: number }): Promise<SessionPage | null>;
  /**
   * Returns the session that a conversation continues, and updates its time of last use; null = no session matches. If `id` is
   * given, only the session with this id is considered. Otherwise, it is the client's session with the most messages in common
   * with the start of the conversation, at least two.
   */
  match(request: {
    readonly client: string;
    readonly id: string | null;
    readonly digests: readonly string[];
  }): Promise<MatchedSession | null>;
  /** Stores the state after a request. Resolves when it is durable. Throws storage_unavailable, invalid_value. */
  update(update: SessionUpdate): Promise<void>;
  /** Stores an imported session. Replaces an existing session with the same id. Throws the errors of `update`. */
  put(request: { readonly client: string; readonly session: Session }): Promise<void>;
  /** Deletes a session. Returns whether it existed. */
  delete(id: string): Promise<boolean>;
}
