// Restarted background responses: what a server does between claiming a response of a server that has ended and starting its
// generation. The servers are apps that share one in-memory store.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { StoredResponses } from "../../../../../actors/api/stored-responses.ts";
import { ResponseStore } from "../../../../../actors/state/response-store.ts";
import { type AppOptions, createApp } from "../../../../../http/app.ts";
import { ServerError } from "../../../../../runtime/errors.ts";
import { MemoryTables } from "../../../../../runtime/store/memory-tables.ts";
import { Stores } from "../../../../../runtime/store/stores.ts";
import { FakeInference, hello, type Script } from "../../../../fixtures/fakes/fake-inference.ts";
import { altered, testLimits } from "../../../../fixtures/fakes/memory-responses.ts";
import { request } from "../../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../../fixtures/http-server.ts";

/** Time in ms that is longer than two searches for responses of servers that have ended. */
const SEARCHES_MS = 5500;
/** Time in ms that is longer than all attempts to start a response. */
const LONG_LOSS_MS = 20_000;
const never: Script = () => [{ waitMs: 120_000 }];

interface Started {
  readonly app: ReturnType<typeof createApp>;
  readonly inference: FakeInference;
  readonly log: ReturnType<typeof recordingLog>;
}

class Fleet {
  readonly #stores = new Stores(new MemoryTables(), "responses");
  readonly #responses = this.#stores.store<never>("responses", testLimits);
  readonly #index = this.#stores.store<never>("restarts", testLimits);
  readonly #dead = new Set<string>();
  readonly #reader = createApp({
    inference: new FakeInference(),
    log: recordingLog(),
    storedResponses: this.#store("a third replica"),
    config: { accessLog: false },
  });

  /** Creates background responses on a server that ends before their first output. Returns their ids; "" for a streamed one. */
  async left(...bodies: object[]): Promise<string[]> {
    const { app } = this.start("dead", { script: never });
    const replies = bodies.map((body) =>
      request(app, "POST", "/v1/responses", { body: { background: true, input: "hi", ...body } }),
    );
    // The reply to a streamed request ends only when the server ends.
    await Promise.race([Promise.all(replies), sleep(300)]);
    // Leaves the responses, which have no output, to another server.
    app.endBackground();
    this.#dead.add("dead");
    return (await Promise.all(replies)).map(({ status, body }, i) => {
      if ("stream" in (bodies[i] ?? {})) return "";
      assert.equal(status, 200, body);
      return JSON.parse(body).id;
    });
  }

  start(
    name: string,
    options: Partial<AppOptions> & {
      readonly script?: Script;
      readonly maxBackgroundResponses?: number;
      readonly inference?: FakeInference;
      readonly changes?: (store: StoredResponses) => Partial<StoredResponses>;
    } = {},
  ): Started {
    const { script = hello, maxBackgroundResponses = 8, changes = () => ({}), ...parts } = options;
    const inference = parts.inference ?? new FakeInference(script);
    const log = recordingLog();
    const store = this.#store(name);
    const storedResponses = altered(store, changes(store));
    const config = { accessLog: false, restartsBackground: true, maxBackgroundResponses };
    return { app: createApp({ ...parts, inference, log, storedResponses, config }), inference, log };
  }

  /** Returns the response as another replica shows it. */
  async shown(id: string): Promise<{ readonly status: string; readonly incomplete_details: object | null }> {
    const { body } = await request(this.#reader, "GET", `/v1/responses/${id}`);
    return JSON.parse(body);
  }

  async hasStatus(id: string, status: string): Promise<void> {
    const until = performance.now() + 15_000;
    let last = "";
    for (; performance.now() < until && last !== status; await sleep(20)) last = (await this.shown(id)).status;
    assert.equal(last, status);
  }

  #store(own: string): StoredResponses {
    return new ResponseStore(this.#responses, { own, isAlive: (name) => !this.#dead.has(name) }, this.#index);
  }
}

describe("background responses left by another server", { concurrency: true, timeout: 60_000 }, () => {
  it("wait while the server loads its models, at its start or after a crash", async () => {
    const fleet = new Fleet();
    const [id] = (await fleet.left({})) as [string];
    const inference = new FakeInference();
    const { entries } = inference;
    let isStarting = true;
    const { app } = fleet.start("next", { inference, isStarting: () => isStarting });
    await sleep(SEARCHES_MS);
    assert.deepEqual([(await fleet.shown(id)).status, inference.runs.length], ["queued", 0]);
    inference.entries = entries.map((entry) => ({ ...entry, status: "reloading" }));
    isStarting = false;
    await sleep(SEARCHES_MS);
    assert.deepEqual([(await fleet.shown(id)).status, inference.runs.length], ["queued", 0]);
    inference.entries = entries;
    await fleet.hasStatus(id, "completed");
    app.endBackground();
  });

  it("are incomplete for all replicas when they cannot be generated, also if the store fails for a while", async () => {
    const fleet = new Fleet();
    const [id] = (await fleet.left({ model: "other" })) as [string];
    const inference = new FakeInference();
    inference.entries = inference.entries.filter(({ id: model }) => model !== "other");
    let failures = 0;
    const { app, log } = fleet.start("next", {
      inference,
      changes: (store) => ({
        giveUp: async (given) => {
          if (++failures > 1) return await store.giveUp(given);
          throw new ServerError("storage_unavailable", "the store is lost");
        },
      }),
    });
    await fleet.hasStatus(id, "incomplete");
    assert.deepEqual((await fleet.shown(id)).incomplete_details, { reason: "interrupted" });
    assert.ok(log.lines.some(({ message }) => message.includes("could not be generated again")));
    app.endBackground();
  });

  it("are tried again with their complete request after a temporary failure", async () => {
    const fleet = new Fleet();
    // A body of this length is read by a text worker, which takes over its memory.
    const [id] = (await fleet.left({ instructions: "i".repeat(100_000) })) as [string];
    const inference = new FakeInference();
    const translate = inference.translate.bind(inference);
    let tries = 0;
    inference.translate = async (asked) => {
      const body = structuredClone(asked.body, { transfer: [asked.body.buffer as ArrayBuffer] });
      if (++tries === 1) throw new ServerError("peer_gone", "the thread is being restarted");
      return await translate({ ...asked, body });
    };
    const { app } = fleet.start("next", { inference });
    await fleet.hasStatus(id, "completed");
    assert.equal(tries, 2);
    app.endBackground();
  });

  it("are claimed only up to the number that may run, also while claimed ones do not begin", async () => {
    const fleet = new Fleet();
    const long = { instructions: "i".repeat(100_000) };
    const ids = await fleet.left(long, long, long);
    const inference = new FakeInference();
    let release = (): void => {};
    inference.translation = new Promise((resolve) => {
      release = resolve;
    });
    let claimed = 0;
    const { app } = fleet.start("next", {
      inference,
      maxBackgroundResponses: 2,
      changes: (store) => ({
        claim: async (request) => {
          const found = await store.claim(request);
          claimed += found.length;
          return found;
        },
      }),
    });
    await sleep(SEARCHES_MS);
    assert.equal(claimed, 2);
    release();
    for (const id of ids) await fleet.hasStatus(id, "completed");
    app.endBackground();
  });

  it("are claimed in addition to those that are claimed and streamed, which count once", async () => {
    const fleet = new Fleet();
    let claimed = 0;
    const changes = (store: StoredResponses): Partial<StoredResponses> => ({
      claim: async (request) => {
        const found = await store.claim(request);
        claimed += found.length;
        return found;
      },
    });
    await fleet.left({ stream: true }, { stream: true });
    const { app } = fleet.start("next", { script: never, maxBackgroundResponses: 4, changes });
    await sleep(SEARCHES_MS);
    assert.equal(claimed, 2);
    await fleet.left({}, {});
    await sleep(SEARCHES_MS);
    assert.equal(claimed, 4);
    app.endBackground();
  });

  it("are generated once by the server that has claimed them, also if it did not receive the reply", async () => {
    const fleet = new Fleet();
    const [id] = (await fleet.left({ instructions: "i".repeat(100_000) })) as [string];
    const inference = new FakeInference();
    let release = (): void => {};
    inference.translation = new Promise((resolve) => {
      release = resolve;
    });
    const claims: number[] = [];
    const { app } = fleet.start("next", {
      inference,
      changes: (store) => ({
        claim: async (asked) => {
          const found = await store.claim(asked);
          // The first searches may come before the other server counts as ended.
          if (claims.length > 0 || found.length > 0) claims.push(found.length);
          if (claims.length === 1) throw new ServerError("timeout", "no reply");
          return found;
        },
      }),
    });
    // Searches while the claimed response is being created do not find it.
    while (claims.length < 3) await sleep(50);
    assert.deepEqual([claims, inference.runs.length], [[1, 1, 0], 0]);
    release();
    await fleet.hasStatus(id, "completed");
    assert.equal(inference.runs.length, 1);
    app.endBackground();
  });

  it("wait for a store that is unreachable for longer than all attempts take", async () => {
    const fleet = new Fleet();
    const [id] = (await fleet.left({})) as [string];
    const back = performance.now() + LONG_LOSS_MS;
    const { app } = fleet.start("next", {
      changes: (store) => ({
        add: async (response) => {
          if (performance.now() > back) return await store.add(response);
          throw new ServerError("storage_unavailable", "the store is lost");
        },
      }),
    });
    await sleep(LONG_LOSS_MS);
    await fleet.hasStatus(id, "completed");
    app.endBackground();
  });

  it("are left to the next server if all attempts of one fail", async () => {
    const fleet = new Fleet();
    const [id] = (await fleet.left({ instructions: "i".repeat(100_000) })) as [string];
    const inference = new FakeInference();
    inference.translate = async () => {
      throw new ServerError("peer_gone", "the thread is being restarted");
    };
    const failing = fleet.start("next", { inference });
    await sleep(SEARCHES_MS);
    // A retired server claims no more responses.
    failing.app.retire();
    const other = fleet.start("other");
    assert.equal((await fleet.shown(id)).status, "queued");
    await sleep(LONG_LOSS_MS - SEARCHES_MS);
    await fleet.hasStatus(id, "completed");
    for (const { app } of [failing, other]) app.endBackground();
  });

  it("are left to the next server by one that stops, before it has exited", async () => {
    const fleet = new Fleet();
    const first = fleet.start("first", { script: never });
    const reply = await request(first.app, "POST", "/v1/responses", { body: { background: true, input: "hi" } });
    const { id } = JSON.parse(reply.body);
    const next = fleet.start("next");
    first.app.drain();
    first.app.endBackground();
    await first.app.settled();
    await fleet.hasStatus(id, "completed");
    next.app.endBackground();
  });

  it("are not claimed by a server that drains", async () => {
    const fleet = new Fleet();
    const { app } = fleet.start("next");
    app.drain();
    const [id] = (await fleet.left({})) as [string];
    await sleep(SEARCHES_MS);
    const after = fleet.start("last");
    await fleet.hasStatus(id, "completed");
    after.app.endBackground();
  });
});
