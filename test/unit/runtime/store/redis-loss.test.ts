// Slow or lost connection to Redis: large values are transferred without losing the connection, and subscriptions survive a
// lost connection.
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ServerError } from "../../../../runtime/errors.ts";
import { RedisConnection } from "../../../../runtime/store/redis/redis-connection.ts";
import { RedisStore } from "../../../../runtime/store/redis/redis-store.ts";
import { storeScripts } from "../../../../runtime/store/redis/scripts.ts";
import { type Subscriber, Subscriptions } from "../../../../runtime/store/redis/subscriptions.ts";
import { type RedisServer, startRedis } from "../../../fixtures/store/redis.ts";
import { lacksRedis } from "../../../fixtures/store/redis-stores.ts";

const MIB = 2 ** 20;
const limits = { maxEntries: 100, maxBytes: 1e8, maxEntryBytes: 5e7, maxAgeMs: 1e9 };

/** Starts a proxy that forwards replies at `bytesPerSecond` per connection. */
async function slowLine(to: number, bytesPerSecond: number): Promise<Server> {
  const proxy = createServer((client) => {
    const redis = connect(to, "127.0.0.1");
    client.pipe(redis);
    for (const socket of [client, redis]) socket.on("error", () => {});
    client.on("close", () => redis.destroy());
    void (async () => {
      for await (const bytes of redis as AsyncIterable<Buffer>) {
        await sleep((1000 * bytes.length) / bytesPerSecond);
        client.write(bytes);
      }
      client.destroy();
    })().catch(() => client.destroy());
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  return proxy;
}

describe("the first connection to Redis", () => {
  /** Starts a server that answers each command with `reply`, and returns the code with which the connection fails. */
  async function refusal(reply: string | null): Promise<unknown> {
    const redis = createServer((client) => {
      client
        .on("error", () => {})
        .on("data", (bytes) => {
          if (reply !== null) client.write(reply.repeat(bytes.toString("latin1").match(/\*\d+\r\n/g)?.length ?? 0));
        });
    }).listen(0, "127.0.0.1");
    await once(redis, "listening");
    const { port } = redis.address() as AddressInfo;
    if (reply === "none") redis.close();
    try {
      const failed = RedisConnection.open(`redis://127.0.0.1:${port}`, storeScripts, () => {});
      const { code, param, message } = await failed.then(
        () => assert.fail("it is open"),
        (error: ServerError) => error,
      );
      assert.match(
        message,
        /^state_url: expected a Redis or Valkey server at redis:\/\/127\.0\.0\.1:\d+: .*correct state_url$/,
      );
      assert.equal(param, "state_url");
      return code;
    } finally {
      redis.close();
    }
  }

  it("fails for a setting only if Redis refuses it, and else for a reason that a later start may not meet", async () => {
    const replies = {
      unreachable: "none",
      silent: null,
      loading: "-LOADING Redis is loading the dataset in memory\r\n",
      refusing: "-WRONGPASS invalid username-password pair\r\n",
      old: "$20\r\nredis_version:5.0.14\r\n",
    };
    const codes = Object.entries(replies).map(async ([name, reply]) => [name, await refusal(reply)]);
    assert.deepEqual(Object.fromEntries(await Promise.all(codes)), {
      ...{ unreachable: "storage_unavailable", silent: "storage_unavailable", loading: "storage_unavailable" },
      ...{ refusing: "config_invalid", old: "config_invalid" },
    });
  });
});

describe("a connection to Redis", { skip: lacksRedis }, () => {
  let server: RedisServer;
  before(async () => {
    server = await startRedis();
  });
  after(() => server.stop());

  it("that is slow is not lost while large parts are read", async () => {
    const proxy = await slowLine(Number(new URL(server.url).port), 1.5 * MIB);
    const losses: string[] = [];
    const url = `redis://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    const connection = await RedisConnection.open(url, storeScripts, ({ isConnected, reason }) => {
      if (!isConnected) losses.push(reason);
    });
    const store = new RedisStore<string>(connection, "slow", limits);
    const bytes = Buffer.alloc(4 * MIB, "content ");
    await store.put("a", { head: "h", share: "s", parts: { text: bytes } });
    const { id } = (await store.get("a"))!.parts.text!;
    // The reads take 5 s in total, which is more than the time limit of a command, even if each read has only one piece in
    // flight.
    const readers = [0, 1, 2, 3].map((at) => store.read(id, at * MIB, (at + 1) * MIB));
    const [whole, ...pieces] = await Promise.all([store.read(id, 0, bytes.length), ...readers]);
    assert.ok(whole && bytes.equals(whole));
    assert.ok(bytes.equals(Buffer.concat(pieces.map((piece) => piece ?? Buffer.alloc(0)))));
    assert.deepEqual(losses, []);
    assert.equal(await store.read(id, bytes.length - 10, bytes.length + 1), null);
    await store.close();
    connection.close();
    proxy.close();
  });

  it("to a server without an identity counts as one to another server when it is back", async () => {
    const sockets = new Set<Socket>();
    const proxy = createServer((client) => {
      const redis = connect(Number(new URL(server.url).port), "127.0.0.1");
      client.pipe(redis);
      redis.on("data", (bytes) =>
        client.write(bytes.toString("latin1").replace(/\b(run_|master_repl)id:/g, "$1no:"), "latin1"),
      );
      for (const socket of [client, redis]) socket.on("error", () => {}).on("close", () => redis.destroy());
      sockets.add(client);
    }).listen(0, "127.0.0.1");
    await once(proxy, "listening");
    let isReplaced: boolean | null = null;
    const url = `redis://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    const connection = await RedisConnection.open(url, storeScripts, (state) => {
      if (state.isConnected) isReplaced = state.isReplaced;
    });
    for (const socket of sockets) socket.destroy();
    for (let tries = 0; isReplaced === null && tries < 200; tries++) await sleep(30);
    connection.close();
    proxy.close();
    assert.equal(isReplaced, true);
  });

  it("counts as lost after a command without a reply, also if the timer of the command fires early", async (t) => {
    const connection = await RedisConnection.open(server.url, storeScripts, () => {});
    server.process.kill("SIGSTOP");
    try {
      // A clock that stands still: the timer fires before the command's time limit has passed on it.
      t.mock.method(performance, "now", () => 0);
      await assert.rejects(connection.command("PING"), /no reply within/);
      t.mock.restoreAll();
      assert.equal(connection.isConnected, false);
      const began = performance.now();
      await assert.rejects(connection.command("PING"), /no reply within/);
      assert.ok(performance.now() - began < 1000, "the next command fails at once");
    } finally {
      server.process.kill("SIGCONT");
    }
    for (let tries = 0; !connection.isConnected && tries < 300; tries++) await sleep(30);
    assert.equal(String(await connection.command("PING")), "PONG");
    connection.close();
  });

  it("that is late with an error reply is used again", async (t) => {
    const connection = await RedisConnection.open(server.url, storeScripts, () => {});
    t.after(() => connection.close());
    await connection.command("SET", "text", "no number");
    server.process.kill("SIGSTOP");
    try {
      await assert.rejects(connection.command("INCR", "text"), /no reply within/);
      assert.equal(connection.isConnected, false);
    } finally {
      server.process.kill("SIGCONT");
    }
    for (let tries = 0; !connection.isConnected && tries < 300; tries++) await sleep(30);
    assert.equal(String(await connection.command("PING")), "PONG");
  });

  it("that is lost while a channel is subscribed to delivers its messages when it is back", async () => {
    const connection = await RedisConnection.open(server.url, storeScripts, () => {});
    await server.kill();
    const messages: string[] = [];
    const stop = connection.subscribe("news", (message) => messages.push(message));
    // During this time, attempts to connect fail.
    await sleep(300);
    await server.start();
    for (let attempt = 0; messages.length === 0; attempt++) {
      assert.ok(attempt < 200, "no message came");
      await connection.command("PUBLISH", "news", "a").catch(() => {});
      await sleep(30);
    }
    assert.equal(messages[0], "a");
    stop();
    connection.close();
  });

  it("delivers each message once to a subscription that replaces another", async () => {
    const connection = await RedisConnection.open(server.url, storeScripts, () => {});
    const messages: string[] = [];
    const first = connection.subscribe("news", () => {});
    await sleep(50);
    first();
    const second = connection.subscribe("news", (message) => messages.push(message));
    await sleep(50);
    await connection.command("PUBLISH", "news", "a");
    await sleep(50);
    assert.deepEqual(messages, ["a"]);
    second();
    connection.close();
  });
});

describe("a connection to Redis behind an address that moves to another server", { skip: lacksRedis }, () => {
  it("leaves a server that has become a replica, and uses the primary as soon as the address leads to it", async (t) => {
    const [old, next] = await Promise.all([startRedis(), startRedis()]);
    let target = old;
    let connections = 0;
    // Existing connections stay, as with a planned failover: Redis does not close them.
    const proxy = createServer((client) => {
      connections++;
      const redis = connect(Number(new URL(target.url).port), "127.0.0.1");
      client.pipe(redis).pipe(client);
      for (const socket of [client, redis])
        socket.on("error", () => {}).on("close", () => [client, redis].map((one) => one.destroy()));
    }).listen(0, "127.0.0.1");
    await once(proxy, "listening");
    const states: unknown[] = [];
    const url = `redis://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
    const connection = await RedisConnection.open(url, storeScripts, ({ isConnected, isReplaced }) => {
      states.push({ isConnected, isReplaced });
    });
    t.after(async () => {
      connection.close();
      proxy.close();
      await Promise.all([old.stop(), next.stop()]);
    });
    const store = new RedisStore<string>(connection, "moved", limits);
    const write = (): Promise<void> => store.put("a", { head: "h", share: "s", parts: {} });
    const messages: string[] = [];
    connection.subscribe("news", (message) => messages.push(message));
    await write();
    const admin = await RedisConnection.open(old.url, [], () => {});
    await admin.command("REPLICAOF", "127.0.0.1", new URL(next.url).port);
    admin.close();
    await assert.rejects(write(), { code: "storage_unavailable", message: /READONLY/ });
    const last = performance.now() + 2000;
    while (performance.now() < last) {
      await assert.rejects(write(), { code: "storage_unavailable" });
      await sleep(10);
    }
    // Each attempt opens a connection for commands, and the first one also one for subscriptions.
    assert.ok(connections > 4 && connections < 20, `${connections} connections in 2 s`);
    target = next;
    for (let tries = 0; !connection.isConnected && tries < 300; tries++) await sleep(30);
    await write();
    assert.deepEqual(states, [
      { isConnected: false, isReplaced: false },
      { isConnected: true, isReplaced: true },
    ]);
    // The reply is the number of subscribers that are connected to the primary.
    for (let tries = 0; (await connection.command("PUBLISH", "news", "a")) !== 1; tries++) {
      assert.ok(tries < 200, "the subscriber did not come back");
      await sleep(30);
    }
    for (let tries = 0; messages.length === 0 && tries < 100; tries++) await sleep(30);
    assert.equal(messages[0], "a");
  });
});

/** Returns a fake client whose commands wait until the test replies; `null` means success. */
function scripted() {
  const sent: string[] = [];
  const waiting: ((error: Error | null) => void)[] = [];
  const ask = (command: string): Promise<void> =>
    new Promise((resolve, reject) => {
      sent.push(command);
      waiting.push((error) => (error === null ? resolve() : reject(error)));
    });
  const client: Subscriber = {
    subscribe: (channel) => ask(`+${channel}`),
    unsubscribe: (channel) => ask(`-${channel}`),
  };
  const answer = async (error: Error | null): Promise<void> => {
    await sleep(1);
    waiting.shift()?.(error);
    await sleep(1);
  };
  return { client, sent, answer };
}

describe("subscriptions", () => {
  const lost = new Error("the socket closed");

  it("send a lost command again when the connection is back, and report the reconnection only then", async () => {
    const { client, sent, answer } = scripted();
    const subscriptions = new Subscriptions(client);
    let isBack = false;
    subscriptions.onBack(() => {
      isBack = true;
    });
    subscriptions.add("a", () => {});
    await answer(lost);
    assert.deepEqual(sent, ["+a"]);
    const back = subscriptions.back();
    await sleep(1);
    assert.deepEqual([sent, isBack], [["+a", "+a"], false]);
    await answer(null);
    await back;
    assert.equal(isBack, true);
    await subscriptions.back();
    assert.deepEqual(sent, ["+a", "+a"]);
  });

  it("end again when the command that ended them was lost", async () => {
    const { client, sent, answer } = scripted();
    const subscriptions = new Subscriptions(client);
    const stop = subscriptions.add("a", () => {});
    await answer(null);
    stop();
    await answer(lost);
    const back = subscriptions.back();
    await answer(null);
    await back;
    assert.deepEqual(sent, ["+a", "-a", "-a"]);
  });

  it("send the commands of a channel one after another", async () => {
    const { client, sent, answer } = scripted();
    const subscriptions = new Subscriptions(client);
    const stop = subscriptions.add("a", () => {});
    await sleep(1);
    stop();
    subscriptions.add("a", () => {})();
    subscriptions.add("b", () => {});
    await sleep(1);
    assert.deepEqual(sent, ["+a", "+b"]);
    await answer(null);
    assert.deepEqual(sent, ["+a", "+b", "-a"]);
  });
});
