// WebSocket connection on uWebSockets.js. The native object must not be used after its close callback, so every method checks
// for this first.
import type { Frame, SocketConnection } from "../socket/connection.ts";
import type { NativeSocket } from "./native.ts";

export class UwsSocket implements SocketConnection {
  readonly #socket: NativeSocket;
  #isClosed = false;
  #wake: () => void = () => {};

  constructor(socket: NativeSocket) {
    this.#socket = socket;
  }

  send(frames: readonly Frame[]): boolean {
    if (this.#isClosed) return true;
    this.#socket.cork(() => {
      for (const frame of frames) this.#sendFrame(frame);
    });
    return this.#isWritable;
  }

  drained(): Promise<void> {
    if (this.#isWritable) return Promise.resolve();
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  ping(): void {
    if (!this.#isClosed) this.#socket.ping();
  }

  close(code: number, reason: string): void {
    if (!this.#isClosed) this.#socket.end(code, reason);
  }

  destroy(): void {
    if (!this.#isClosed) this.#socket.close();
  }

  /** Called when uWS has sent buffered bytes. */
  hasSent(): void {
    if (this.#isWritable) this.#wake();
  }

  /** Called when uWS has closed the connection. */
  hasClosed(): void {
    this.#isClosed = true;
    this.#wake();
  }

  get #isWritable(): boolean {
    return this.#isClosed || this.#socket.getBufferedAmount() === 0;
  }

  #sendFrame({ text, part }: Frame): void {
    if (part === "whole") this.#socket.send(text);
    else if (part === "first") this.#socket.sendFirstFragment(text);
    else if (part === "middle") this.#socket.sendFragment(text);
    else this.#socket.sendLastFragment(text);
  }
}
