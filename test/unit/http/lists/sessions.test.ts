import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Agents } from "../../../../actors/api/agent/agents.ts";
import { sessionListSchema } from "../../../../http/sessions/list-route.ts";
import { loadableEdges, startServer, type TestServer } from "../../../fixtures/http-server.ts";
import { openStores, type TestStores } from "../agents/stores.ts";

for (const edge of loadableEdges()) {
  describe(`the list of sessions on the ${edge} edge`, () => {
    let stores: TestStores;
    let server: TestServer;
    before(async () => {
      stores = await openStores();
      server = await startServer(edge, { parts: stores });
    });
    after(async () => {
      await server.stop();
      stores.dispose();
    });

    const ask = (query = "") => fetch(`${server.url}/v1/sessions${query}`);
    const list = async (query = "") => {
      const reply = await ask(query);
      assert.equal(reply.status, 200);
      return sessionListSchema.parse(await reply.json());
    };
    const idsOf = ({ data, has_more }: Awaited<ReturnType<typeof list>>) => [data.map(({ id }) => id), has_more];
    const put = async (id: string, turns = 1) => {
      const session = {
        id,
        turns,
        digests: ["one", "two", "three"],
        messages: [{ message: { role: "user", content: "hi" }, visible: 0 }],
        images: ["aaaa"],
        videos: [],
        files: ["file-a", "file-b"],
        approvesAll: false,
      };
      await stores.sessions.put({ client: "c", session });
      await sleep(5);
    };

    it("is empty at first", async () => {
      assert.deepEqual(await list(), { object: "list", data: [], first_id: null, last_id: null, has_more: false });
    });

    it("has the facts of each session, the most recently used first", async () => {
      const since = Math.floor(Date.now() / 1000);
      for (const id of ["a", "b", "c"]) await put(id, 3);
      const { data, first_id, last_id } = await list();
      assert.deepEqual([data.map(({ id }) => id), first_id, last_id], [["c", "b", "a"], "c", "a"]);
      const { last_used_at, bytes, ...facts } = data[0]!;
      assert.deepEqual(facts, { id: "c", object: "session", turns: 3, messages: 3, files: 2 });
      assert.ok(last_used_at >= since && last_used_at <= Date.now() / 1000);
      assert.equal(bytes, '[{"message":{"role":"user","content":"hi"},"visible":0}]'.length + '["aaaa"]'.length + 2);
      await stores.sessions.find("a");
      assert.deepEqual(idsOf(await list()), [["a", "c", "b"], false]);
    });

    it("lacks a session that is deleted after its runs have ended, though they stored it to the last", async () => {
      const agents = { forget: async (id: string) => await put(id) } as unknown as Agents;
      const other = await startServer(edge, { parts: stores, makeAgents: () => agents });
      try {
        await put("left");
        const reply = await fetch(`${other.url}/v1/sessions/left`, { method: "DELETE" });
        assert.deepEqual(await reply.json(), { id: "left", object: "session", deleted: true });
        assert.equal(await stores.sessions.find("left"), null);
      } finally {
        await other.stop();
      }
    });

    it("does not use the sessions that it shows", async () => {
      const [before] = (await list()).data;
      await sleep(1100);
      assert.deepEqual((await list()).data[0], before);
    });

    it("has pages", async () => {
      assert.deepEqual(idsOf(await list("?limit=2")), [["a", "c"], true]);
      assert.deepEqual(idsOf(await list("?limit=2&after=c")), [["b"], false]);
      assert.deepEqual(idsOf(await list("?after=b")), [[], false]);
      assert.deepEqual(idsOf(await list("?limit=3")), [["a", "c", "b"], false]);
    });

    it("refuses a limit out of range and an id that is not in the list", async () => {
      for (const [query, param] of [
        ["limit=0", "limit"],
        ["limit=101", "limit"],
        ["after=none", "after"],
        ["after=", "after"],
      ] as const) {
        const reply = await ask(`?${query}`);
        const { error } = (await reply.json()) as { error: { code: string; param: string } };
        assert.deepEqual([reply.status, error.code, error.param], [400, "invalid_value", param], query);
      }
    });

    it("does not have sessions that were deleted", async () => {
      await fetch(`${server.url}/v1/sessions/c`, { method: "DELETE" });
      assert.deepEqual(idsOf(await list()), [["a", "b"], false]);
    });

    it("is refused by a server without sessions, and gone with disable_lists", async () => {
      for (const [servesLists, status] of [
        [true, 400],
        [false, 404],
      ] as const) {
        const other = await startServer(edge, { config: { servesLists } });
        assert.equal((await fetch(`${other.url}/v1/sessions`)).status, status);
        await other.stop();
        const own = await openStores();
        const storing = await startServer(edge, { parts: own, config: { servesLists } });
        assert.equal((await fetch(`${storing.url}/v1/files`)).status, servesLists ? 200 : 405);
        await storing.stop();
        own.dispose();
      }
    });
  });
}
