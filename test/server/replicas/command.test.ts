// Replicas started with the real command: two servers with a real model that share one Redis.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { RedisConnection } from "../../../runtime/store/redis/redis-connection.ts";
import { RedisStore } from "../../../runtime/store/redis/redis-store.ts";
import { storeScripts } from "../../../runtime/store/redis/scripts.ts";
import { realModel } from "../../fixtures/models/models.ts";
import { runCommand, startServer } from "../../fixtures/serve.ts";
import { startRedis } from "../../fixtures/store/redis.ts";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";
import { Follower, jsonBody } from "./rig.ts";

/** Returns the number of responses of each client, in descending order. */
async function sharesOf(url: string): Promise<number[]> {
  const connection = await RedisConnection.open(url, storeScripts, () => {});
  try {
    const limits = { maxEntries: 100, maxBytes: 2 ** 30, maxEntryBytes: 2 ** 30, maxAgeMs: 1e9 };
    const { entries } = await new RedisStore(connection, "responses", limits).newest({ before: null, limit: 10 });
    const counts = new Map<string, number>();
    for (const { share } of entries) counts.set(share, (counts.get(share) ?? 0) + 1);
    return [...counts.values()].sort((a, b) => b - a);
  } finally {
    connection.close();
  }
}

describe("servers with state_url", { skip: lacksRedis, timeout: 180_000 }, () => {
  it("follow, cancel and read each other's responses, and never show the password", async () => {
    const redis = await startRedis({ password: "open sesame" });
    const { path: model } = await realModel();
    // The URL is passed in the environment, because it may contain a secret.
    const environment = { TROUPE_STATE_URL: redis.url };
    const servers = await Promise.all([1, 2].map(() => startServer(["-m", model, "--threads", "1"], environment)));
    const [one, other] = servers as [(typeof servers)[number], (typeof servers)[number]];
    try {
      const body = { input: "Count.", background: true, stream: true, max_output_tokens: 24, ignore_eos: true };
      const creator = new Follower(`${one.url}/v1/responses`, jsonBody(body));
      const first = await creator.first(({ response }) => response !== undefined);
      const id = first?.response?.id ?? "";
      const follower = new Follower(`${other.url}/v1/responses/${id}?stream=true`);
      assert.deepEqual([await creator.ended, await follower.ended], [true, true]);
      assert.deepEqual(follower.events, creator.events);
      const bodies = await Promise.all(
        servers.map(async ({ url }) => (await fetch(`${url}/v1/responses/${id}`)).json() as Promise<object>),
      );
      assert.deepEqual(bodies[0], bodies[1]);

      // The same API key on both servers identifies the same client, so both responses are stored as that client's.
      const key = { "x-api-key": "sk-0123456789abcdef0123456789abcdef" };
      const asked = jsonBody({ input: "Hi.", max_output_tokens: 1 });
      for (const { url } of servers) {
        const reply = await fetch(`${url}/v1/responses`, { ...asked, headers: { ...asked.headers, ...key } });
        assert.equal(reply.status, 200, await reply.text());
      }
      assert.deepEqual(await sharesOf(redis.url), [2, 1]);

      const long = new Follower(`${one.url}/v1/responses`, jsonBody({ ...body, max_output_tokens: 1500 }));
      const begun = await long.first(({ response }) => response !== undefined);
      const cancelled = await fetch(`${other.url}/v1/responses/${begun?.response?.id}/cancel`, { method: "POST" });
      assert.equal(((await cancelled.json()) as { status: string }).status, "cancelled");
      await long.ended;

      const settings = await (await fetch(`${one.url}/v1/system/config`)).text();
      await sleep(50);
      for (const text of [one.output(), other.output(), settings]) assert.doesNotMatch(text, /sesame/);
      assert.match(one.output(), /the state is shared/);
    } finally {
      await Promise.all(servers.map((server) => server.stop()));
      await redis.stop();
    }
    const failed = await runCommand(["serve", "-m", model, "--engine", "wasm", "--port", "0"], environment);
    assert.equal(failed.code, 1);
    assert.match(failed.stderr + failed.stdout, /state_url: expected a Redis or Valkey server at redis:\/\/127.0.0.1/);
    assert.doesNotMatch(failed.stderr + failed.stdout, /sesame/);
  });
});
