// Clients that violate HTTP or are slow on purpose: they send bytes on a bare connection and collect the response bytes.
import { connect, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";

export interface RawReply {
  readonly text: string;
  /** Milliseconds until the server closed the connection; null if it did not in time. */
  readonly closedAfterMs: number | null;
  readonly firstByteMs: number | null;
}

/** Sends the bytes and collects the response until the server closes the connection, for at most `waitMs`. */
export function exchangeRaw(port: number, bytes: string | Buffer, waitMs: number): Promise<RawReply> {
  const startMs = performance.now();
  const socket = openRaw(port);
  let text = "";
  let firstByteMs: number | null = null;
  socket.on("data", (data: Buffer) => {
    firstByteMs ??= performance.now() - startMs;
    text += data.toString("latin1");
  });
  socket.write(bytes);
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      resolve({ text, closedAfterMs: null, firstByteMs });
      socket.destroy();
    }, waitMs);
    socket.on("close", () => {
      clearTimeout(timer);
      resolve({ text, closedAfterMs: performance.now() - startMs, firstByteMs });
    });
  });
}

/** Returns the statuses of the responses in the received bytes. */
export function statusesIn({ text }: RawReply): number[] {
  return [...text.matchAll(/HTTP\/1\.[01] (\d{3}) /g)].map(([, status]) => Number(status));
}

/** Opens a connection whose errors are ignored. */
export function openRaw(port: number): Socket {
  const socket = connect({ host: "127.0.0.1", port });
  socket.on("error", () => {});
  return socket;
}

/** Sends one byte at a time. Returns the milliseconds until the server closed the connection, or null if it did not. */
export async function trickle(port: number, head: string, pauseMs: number, limitMs: number): Promise<number | null> {
  const startMs = performance.now();
  const socket = openRaw(port);
  socket.resume();
  let isClosed = false;
  socket.on("close", () => {
    isClosed = true;
  });
  socket.write(head);
  while (performance.now() - startMs < limitMs) {
    await sleep(pauseMs);
    if (isClosed) return performance.now() - startMs;
    socket.write("x");
  }
  socket.destroy();
  return null;
}
