// Socket connection: interface between a WebSocket connection in an HTTP front end and the session that handles it. Implemented
// by uws/ and node/.

/** A text message, or a part of a long text message. A part never ends within a character. */
export interface Frame {
  readonly text: string;
  readonly part: "whole" | "first" | "middle" | "last";
}

/** WebSocket connection. After it has closed, every call does nothing. */
export interface SocketConnection {
  /** Sends frames. Returns false if the client reads too slowly (back pressure); wait for `drained` before the next call. */
  send(frames: readonly Frame[]): boolean;
  /** Resolves when sending may continue or the connection has closed. */
  drained(): Promise<void>;
  ping(): void;
  /** Closes the connection after the frames already passed to `send`. `code`: close code of RFC 6455. */
  close(code: number, reason: string): void;
  /** Closes the connection immediately. */
  destroy(): void;
}

/** Listener for the messages and the close of a connection. */
export interface SocketListener {
  /** Called for each complete message. Takes ownership of its bytes. */
  message(data: Uint8Array): void;
  /** Called once, when the connection has closed for any reason. */
  closed(): void;
}

/** Close codes of RFC 6455. */
export const closeCodes = { normal: 1000, goingAway: 1001 } as const;
