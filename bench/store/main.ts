// `bench store`: cost of stored responses in Redis and in LMDB for the main thread of a server. Each response is added while it
// runs, replaced at its end, looked up and read.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import arg from "arg";
import type { ResponseUpdate, StoredResponse, StoredResponses } from "../../actors/api/stored-responses.ts";
import { StateClient } from "../../actors/front/state-client.ts";
import type { SharedStateInit } from "../../actors/messages.ts";
import { table } from "../../cli/bench/report.ts";
import { itemTexts } from "../../http/responses/request/item-texts.ts";
import { startRedis } from "../../test/fixtures/store/redis.ts";
import { watchLoopDelay } from "../loop-delay.ts";
import { report } from "../results.ts";

export const usage = `npm run bench -- store [FLAGS]: stored responses in Redis and in LMDB

  --responses 2000   responses of each side and round
  --rounds 5         alternating rounds
  --clients 32       clients at once in the second table
  --bytes 4096       bytes of the output of a response
  --aof              Redis writes each command to the disk before it replies
  --save             write bench/results/store.md
`;

const limits = { maxEntries: 5000, maxBytes: 2 ** 30, maxEntryBytes: 64 * 2 ** 20, maxAgeMs: 1e9 };
const silent = { trace() {}, debug() {}, info() {}, warn() {}, error() {}, fatal() {} } as never;
/** Duration in ms of the measurement of an idle event loop's delay, which shows the influence of other programs on the machine. */
const IDLE_MS = 3000;
const sides = ["lmdb", "redis"] as const;
type Side = (typeof sides)[number];

interface Measured {
  /** Time to store and read each response, in ms. */
  readonly times: number[];
  /** 99th percentile of the event loop delay in each round, in ms. */
  readonly loop: number[];
}

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    {
      "--responses": Number,
      "--rounds": Number,
      "--clients": Number,
      "--bytes": Number,
      "--aof": Boolean,
      "--save": Boolean,
    },
    { argv: [...argv] },
  );
  const {
    "--responses": count = 2000,
    "--rounds": rounds = 5,
    "--clients": clients = 32,
    "--bytes": bytes = 4096,
  } = flags;
  const folder = mkdtempSync(join(tmpdir(), "troupe-bench-store-"));
  const redis = await startRedis({ aof: flags["--aof"] ?? false });
  const shared: SharedStateInit = { url: redis.url, replica: "replica_bench", leaseMs: 10_000 };
  const stores = { lmdb: await open(join(folder, "lmdb"), null), redis: await open(join(folder, "copies"), shared) };
  try {
    const idle = watchLoopDelay();
    await sleep(IDLE_MS);
    const tables = [`loop p99 without a store: ${idle().p99.toFixed(2)} ms`];
    for (const atOnce of [1, clients]) {
      const measured = { lmdb: empty(), redis: empty() };
      for (const side of sides) await round(stores[side].responses, atOnce, Math.min(200, count), bytes, empty());
      for (let i = 0; i < rounds; i++) {
        // LMDB and Redis alternate in going first.
        for (const side of i % 2 === 0 ? sides : sides.toReversed()) {
          await round(stores[side].responses, atOnce, count, bytes, measured[side]);
        }
      }
      tables.push(`${atOnce} at once\n\n${shown(measured)}`);
    }
    report(
      {
        name: "store",
        title: "Stored responses in Redis and in LMDB",
        method:
          `Alternating rounds: ${rounds}, of ${count} responses each. A response is added while it runs, replaced at its end ` +
          `(output of ${bytes} bytes), found and read: four questions of the main thread to the state thread. Times are of ` +
          `all four together. Redis is Debian's redis-server on the same machine, over loopback TCP, ${flags["--aof"] ? "with" : "without"} an ` +
          "append-only file; LMDB writes to the disk. The loop delay is that of the main thread, which also runs the clients.",
        body: tables.join("\n\n"),
      },
      flags["--save"] ?? false,
    );
  } finally {
    await Promise.all(sides.map((side) => stores[side].stop(2000)));
    await redis.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function open(folder: string, shared: SharedStateInit | null): Promise<StateClient> {
  const init = {
    folder,
    mailboxLimit: 4096,
    responses: limits,
    maxFileContentBytes: 2 ** 30,
    skillsFolder: null,
    shared,
  };
  const state = new StateClient({ init, log: silent });
  await state.start();
  return state;
}

function empty(): Measured {
  return { times: [], loop: [] };
}

/** Stores and reads `count` responses, `atOnce` at a time. */
async function round(
  store: StoredResponses,
  atOnce: number,
  count: number,
  bytes: number,
  measured: Measured,
): Promise<void> {
  const delay = watchLoopDelay();
  let next = 0;
  const client = async (): Promise<void> => {
    while (next++ < count) {
      const began = performance.now();
      await one(store, bytes);
      measured.times.push(performance.now() - began);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, client));
  measured.loop.push(delay().p99);
}

let serial = 0;

async function one(store: StoredResponses, bytes: number): Promise<void> {
  const id = `resp_${String(serial++).padStart(32, "0")}`;
  const running = {
    id,
    isRunning: true,
    status: "in_progress",
    body: Buffer.from("{"),
    interrupted: Buffer.from("{!"),
  };
  const begun: ResponseUpdate = { ...running, output: itemTexts([]), outputStart: null, events: null };
  const response: StoredResponse = {
    ...begun,
    client: `client${serial % 8}`,
    previousId: null,
    isBackground: false,
    createdAt: 1,
    model: "m",
    inputStart: "hello",
    settings: Buffer.from('"temperature":1}'),
    input: itemTexts([{ id: "msg_1", role: "user", content: "hello" }]),
  };
  await store.add(response);
  const output = itemTexts([{ id: "msg_2", role: "assistant", content: "x".repeat(bytes) }]);
  const ended = { id, isRunning: false, status: "completed", body: Buffer.alloc(bytes, 120), interrupted: null };
  await store.update({ ...ended, output, outputStart: "x", events: null });
  const found = await store.find(id);
  const slice = found === null ? null : await store.slice({ spans: found.body, at: 0 });
  if (slice === null || slice.byteLength < bytes) throw new Error(`response ${id} was not read back`);
}

function shown(measured: Readonly<Record<Side, Measured>>): string {
  const rows = sides.map((side) => {
    const { times, loop } = measured[side];
    return [
      side,
      ...[0.5, 0.99].map((part) => quantile(times, part).toFixed(2)),
      quantile(loop, 0.5).toFixed(2),
      Math.max(...loop).toFixed(2),
    ];
  });
  const cost = quantile(measured.redis.times, 0.5) - quantile(measured.lmdb.times, 0.5);
  const header = ["store", "p50 ms", "p99 ms", "loop p99 ms, median round", "worst round"];
  return `${table(header, rows)}\n\nRedis over LMDB at p50: ${cost.toFixed(2)} ms (bar: at most 1 ms)`;
}

function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? Number.NaN;
}
