// Work of a schedule: the client operations, drawn at random from the seed.
import { setTimeout as sleep } from "node:timers/promises";
import type { Dice } from "../../../test/fixtures/hostile/dice.ts";
import type { Ledger } from "../ledger.ts";
import { chatStream, chatWhole, chatWithAdapter, embeddings, structured } from "./chats.ts";
import { files } from "./files.ts";
import type { Operation, Work } from "./operation.ts";
import { background, conversation, responseWaiting, shellRun } from "./responses.ts";

/** Operations. An operation with a larger weight is drawn more often. */
const operations: readonly (readonly [weight: number, name: string, run: Operation])[] = [
  [5, "chat stream", (work) => chatStream(work)],
  [2, "chat", chatWhole],
  [4, "response", responseWaiting],
  [6, "background", background],
  [2, "conversation", conversation],
  [2, "embeddings", embeddings],
  [2, "adapter", chatWithAdapter],
  [2, "structured", structured],
  [2, "files", files],
  [2, "shell", shellRun],
];

export interface PlannedWork {
  readonly name: string;
  readonly run: Operation;
  readonly atMs: number;
  /** Index of the server to which the operation sends its requests. */
  readonly server: number;
}

/** Draws the operations of a schedule. */
export function planWork(dice: Dice, servers: number, spanMs: number): PlannedWork[] {
  const bag = operations.flatMap((operation) => Array.from({ length: operation[0] }, () => operation));
  return dice.times(dice.int(6, 16), () => {
    const [, name, run] = dice.pick(bag);
    return { name, run, atMs: dice.int(0, spanMs), server: dice.int(0, servers - 1) };
  });
}

/** Returns a function that waits for the end of a response. After the limit it reports a violation and disconnects the client. */
export function waiterFor(what: string, ledger: Ledger, usualMs: number): Work["ended"] {
  return async (call, limitMs = usualMs) => {
    const stop = new AbortController();
    const late = sleep(limitMs, "late" as const, { signal: stop.signal }).catch(() => "late" as const);
    const first = await Promise.race([call.ended, late]);
    stop.abort();
    if (first !== "late") return first;
    ledger.broken(
      `${what}: no end within ${Math.round(limitMs / 1000)} s (status ${call.status}, ${call.events.length} events)`,
    );
    call.leave();
    return call.ended;
  };
}
