// Clients that break HTTP's rules, or are slow on purpose: bytes on a bare connection, and what comes back.
import { connect, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";

export interface RawReply {
  readonly text: string;
  /** Milliseconds until the server closed the connection; null where it has not in time. */
  readonly closedAfterMs: number | null;
  readonly firstByteMs: number | null;
}

/** Sends the bytes and collects what comes until the server closes the connection, for `waitMs` at most. */
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

/** Statuses of the answers in what came back. */
export function statusesIn({ text }: RawReply): number[] {
  return [...text.matchAll(/HTTP\/1\.[01] (\d{3}) /g)].map(([, status]) => Number(status));
}

/** A connection whose errors are ignored. */
export function openRaw(port: number): Socket {
  const socket = connect({ host: "127.0.0.1", port });
  socket.on("error", () => {});
  return socket;
}

/** Sends one byte at a time; gives the milliseconds until the server closed the connection, or null. */
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
