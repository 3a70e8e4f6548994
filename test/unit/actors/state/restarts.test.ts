// Claims of background responses whose server has ended: exactly one server gets each response, and the number of attempts is
// limited.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type {
  ClaimedResponse,
  Span,
  StoredResponse,
  StoredResponses,
} from "../../../../actors/api/stored-responses.ts";
import type { KeptHead } from "../../../../actors/state/kept-head.ts";
import { ResponseStore } from "../../../../actors/state/response-store.ts";
import { RecentResponses } from "../../../../actors/state/shared/recent-responses.ts";
import { MAX_RESTARTS } from "../../../../actors/state/shared/restarts.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import type { Store } from "../../../../runtime/store/store.ts";
import { Stores } from "../../../../runtime/store/stores.ts";

const limits = { maxEntries: 1000, maxBytes: 2 ** 24, maxEntryBytes: 2 ** 20, maxAgeMs: 1e9 };
const none = { ids: [], texts: new Uint8Array(0), ends: new Uint32Array(0) };
const id = `resp_${"0".repeat(32)}`;
const request = Buffer.from('{"background":true}');

/** Creates servers that share one store. Those in `dead` count as ended. `use`: gets the stores of the responses and of their index. */
function servers(
  names: readonly string[],
  dead: Set<string>,
  use: (responses: Store<KeptHead>, index: Store<never>) => void = () => {},
): StoredResponses[] {
  const stores = new Stores(new MemoryTables(), "responses");
  const [responses, index] = [stores.store<KeptHead>("responses", limits), stores.store<never>("restarts", limits)];
  use(responses, index);
  return names.map((own) => {
    const owners = { own, isAlive: (name: string) => !dead.has(name) };
    return new ResponseStore(responses, owners, index, new RecentResponses());
  });
}

function claim(store: StoredResponses, heldIds: readonly string[] = []): Promise<readonly ClaimedResponse[]> {
  return store.claim({ limit: 10, heldIds });
}

function running(status = "queued"): StoredResponse {
  const body = Buffer.from(status);
  return {
    ...{ id, isRunning: true, status, body, interrupted: Buffer.from("interrupted"), output: none, outputStart: null },
    ...{ events: null, client: "client", previousId: null, isBackground: true, createdAt: 7, model: "m" },
    ...{ inputStart: null, settings: Buffer.from("{}"), input: none, restart: { request, count: 0 } },
  };
}

async function textOf(store: StoredResponses, spans: readonly Span[]): Promise<string> {
  return Buffer.from((await store.slice({ spans, at: 0 })) ?? []).toString();
}

const final = { id, isRunning: false, interrupted: null, output: none, outputStart: null, events: null };

describe("restarts of responses", () => {
  it("are claimed by one server once the first has ended, which can then no longer write", async () => {
    const dead = new Set<string>();
    const [first, ...others] = servers(["a", "b", "c"], dead) as [StoredResponses, ...StoredResponses[]];
    await first.add(running());
    for (const other of others) assert.deepEqual(await claim(other), []);
    dead.add("a");
    assert.equal((await others[0]?.find(id))?.runner, "elsewhere", "it waits for the next server");
    const claims = (await Promise.all(others.map((other) => claim(other)))).flat();
    const [claimed] = claims;
    assert.equal(claims.length, 1);
    assert.deepEqual(
      { ...claimed, request: Buffer.from(claimed?.request ?? []) },
      {
        ...{ id, client: "client", createdAt: 7, count: 1, request },
      },
    );
    dead.clear();
    // The first server was only paused. It must find that its response has been taken over.
    assert.equal(await first.begin(id), false);
    assert.equal(await first.update({ ...final, status: "completed", body: Buffer.from("late") }), "taken");
    const owner = (await first.find(id))?.owner;
    const next = others[owner === "b" ? 0 : 1] as StoredResponses;
    await next.add({ ...running(), restart: { request, count: 1 } });
    assert.equal(await next.begin(id), true);
    assert.equal(await next.update({ ...final, status: "completed", body: Buffer.from("whole") }), "updated");
    assert.equal(await first.update({ ...final, status: "failed", body: Buffer.from("late") }), "taken");
    assert.equal((await first.find(id))?.status, "completed");
  });

  it("are not claimed after their first output, their end or their deletion", async () => {
    for (const change of [
      (store: StoredResponses) => store.begin(id),
      (store: StoredResponses) => store.update({ ...final, status: "completed", body: Buffer.from("") }),
      (store: StoredResponses) => store.delete(id),
    ]) {
      const dead = new Set<string>();
      const [first, other] = servers(["a", "b"], dead) as [StoredResponses, StoredResponses];
      await first.add(running());
      await change(first);
      dead.add("a");
      assert.deepEqual(await claim(other), []);
      assert.notEqual((await other.find(id))?.runner, "elsewhere");
    }
  });

  it("that are given up are shown as interrupted by all servers, and not claimed again", async () => {
    const dead = new Set<string>();
    const [first, next, other] = servers(["a", "b", "c"], dead) as [StoredResponses, StoredResponses, StoredResponses];
    await first.add(running());
    dead.add("a");
    assert.equal((await claim(next)).length, 1);
    await other.giveUp(id);
    assert.equal((await other.find(id))?.runner, "elsewhere", "only the server that has claimed it gives it up");
    await next.giveUp(id);
    for (const server of [next, other]) {
      const found = await server.find(id);
      assert.deepEqual([found?.status, found?.runner, found?.interrupted], ["incomplete", null, null]);
      assert.equal(await textOf(server, found?.body ?? []), "interrupted{}");
      const listed = await server.list({ after: null, limit: 10 });
      assert.deepEqual(
        listed?.responses.map(({ status, runner }) => [status, runner]),
        [["incomplete", null]],
      );
    }
    dead.add("b");
    assert.deepEqual(await claim(other), []);
    // Giving up must not change a response that has ended in the meantime or was deleted.
    await next.giveUp(id);
    assert.equal(await other.delete(id), true);
    await next.giveUp(id);
    assert.equal(await other.find(id), null);
  });

  it("are claimed at once from a server that leaves them, which does not count as one that failed", async () => {
    const names = Array.from({ length: 2 * MAX_RESTARTS }, (_, i) => `server ${i}`);
    const stores = servers(names, new Set());
    await stores[0]?.add(running());
    for (const [i, store] of stores.slice(1).entries()) {
      assert.deepEqual(await claim(store), []);
      await store.release(id);
      assert.deepEqual(await claim(store), [], "only its own server leaves it");
      await stores[i]?.release(id);
      assert.equal((await store.find(id))?.runner, "elsewhere");
      const [claimed] = await claim(store);
      assert.equal(claimed?.count, 1);
    }
    const last = stores.at(-1) as StoredResponses;
    assert.equal(await last.begin(id), true);
    await last.release(id);
    assert.deepEqual(await claim(stores[0] as StoredResponses), [], "it has output");
  });

  it("stay deleted if they are deleted between their claim and their start", async () => {
    for (const deleting of ["b", "c"]) {
      const dead = new Set<string>();
      const [first, next, other] = servers(["a", "b", "c"], dead) as [
        StoredResponses,
        StoredResponses,
        StoredResponses,
      ];
      await first.add(running());
      dead.add("a");
      assert.equal((await claim(next)).length, 1);
      assert.equal(await (deleting === "b" ? next : other).delete(id), true);
      await next.add({ ...running(), restart: { request, count: 1 } });
      assert.equal(await next.begin(id), false, "nothing is generated");
      assert.equal(await other.find(id), null);
      assert.equal(await next.update({ ...final, status: "completed", body: Buffer.from("late") }), "deleted");
      assert.equal(await other.find(id), null);
    }
  });

  it(`end after ${MAX_RESTARTS}, because the request may be the reason`, async () => {
    const dead = new Set<string>();
    const names = Array.from({ length: MAX_RESTARTS + 2 }, (_, i) => `server ${i}`);
    const stores = servers(names, dead);
    await stores[0]?.add(running());
    let count = 0;
    for (const [i, store] of stores.entries()) {
      count += (await claim(store)).length;
      dead.add(names[i] as string);
    }
    assert.equal(count, MAX_RESTARTS);
    const [survivor] = [stores.at(-1)];
    dead.delete(names.at(-1) as string);
    assert.equal((await survivor?.find(id))?.runner, "nobody");
  });

  it(`are claimed from a server that leaves them after ${MAX_RESTARTS}`, async () => {
    const dead = new Set<string>();
    const names = Array.from({ length: MAX_RESTARTS + 3 }, (_, i) => `server ${i}`);
    const stores = servers(names, dead);
    await stores[0]?.add(running());
    for (let i = 0; i < MAX_RESTARTS; i++) {
      dead.add(names[i] as string);
      assert.equal((await claim(stores[i + 1] as StoredResponses)).length, 1);
    }
    const [last, next, other] = stores.slice(MAX_RESTARTS) as [StoredResponses, StoredResponses, StoredResponses];
    await last.release(id);
    assert.equal((await next.find(id))?.runner, "elsewhere");
    assert.equal((await claim(next))[0]?.count, MAX_RESTARTS);
    dead.add(names[MAX_RESTARTS + 1] as string);
    assert.deepEqual(await claim(other), []);
    assert.equal((await other.find(id))?.runner, "nobody");
  });

  it("are claimed again by the server that did not receive the reply, and never by others meanwhile", async () => {
    const dead = new Set<string>();
    let isReplyLost = false;
    const names = Array.from({ length: MAX_RESTARTS + 2 }, (_, i) => `server ${i}`);
    const stores = servers(names, dead, (responses) => {
      const compareAndSet = responses.compareAndSet.bind(responses);
      responses.compareAndSet = async (...change) => {
        const isSet = await compareAndSet(...change);
        if (isReplyLost) throw new ServerError("storage_unavailable", "no reply");
        return isSet;
      };
    });
    const other = stores.at(-1) as StoredResponses;
    await stores[0]?.add(running());
    for (let i = 0; i < MAX_RESTARTS; i++) {
      dead.add(names[i] as string);
      const next = stores[i + 1] as StoredResponses;
      isReplyLost = true;
      await assert.rejects(claim(next), { code: "storage_unavailable" });
      isReplyLost = false;
      assert.deepEqual(await claim(other), []);
      // The reply to the second claim does not reach the main thread.
      for (const reply of ["lost", "received"]) assert.equal((await claim(next))[0]?.count, i + 1, reply);
      assert.deepEqual(await claim(next, [id]), []);
      assert.deepEqual(await claim(other), []);
    }
  });

  it("are not claimed by the server that created them, or that has ended them if Redis has lost the end", async () => {
    const dead = new Set<string>();
    let isLost = false;
    const [first, next] = servers(["a", "b"], dead, (responses, index) => {
      // Writes that Redis acknowledges but loses.
      const compareAndSet = responses.compareAndSet.bind(responses);
      responses.compareAndSet = async (...change) => isLost || (await compareAndSet(...change));
      const remove = index.delete.bind(index);
      index.delete = async (key) => isLost || (await remove(key));
    }) as [StoredResponses, StoredResponses];
    await first.add(running());
    assert.deepEqual(await claim(first), []);
    dead.add("a");
    assert.equal((await claim(next)).length, 1);
    await next.add({ ...running(), restart: { request, count: 1 } });
    isLost = true;
    assert.equal(await next.update({ ...final, status: "failed", body: Buffer.from("whole") }), "updated");
    assert.deepEqual(await claim(next), []);
  });
});
