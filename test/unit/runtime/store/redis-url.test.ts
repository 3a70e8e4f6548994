import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ServerError } from "../../../../runtime/errors.ts";
import { RedisConnection } from "../../../../runtime/store/redis/redis-connection.ts";
import { clientOptions, shownUrl } from "../../../../runtime/store/redis/redis-url.ts";
import { storeScripts } from "../../../../runtime/store/redis/scripts.ts";
import { startRedis } from "../../../fixtures/store/redis.ts";
import { lacksRedis } from "../../../fixtures/store/redis-stores.ts";

describe("the address of a shared state", () => {
  it("has a host, a login and a database, or a socket", () => {
    assert.deepEqual(clientOptions("redis://localhost"), { socket: { host: "localhost", port: 6379 }, database: 0 });
    assert.deepEqual(clientOptions("rediss://me:p%40ss@[::1]:7000/3"), {
      socket: { host: "::1", port: 7000, tls: true },
      database: 3,
      username: "me",
      password: "p@ss",
    });
    assert.deepEqual(clientOptions("unix://:secret@localhost/run/redis%20a.sock?db=2"), {
      socket: { path: "/run/redis a.sock", tls: false },
      database: 2,
      password: "secret",
    });
  });

  it("is shown without its login", () => {
    assert.equal(shownUrl("rediss://me:secret@host:7000/3"), "rediss://host:7000, database 3");
    assert.equal(shownUrl("unix://:secret@localhost/run/redis.sock"), "unix:///run/redis.sock");
  });

  it("is refused if it has another form, in a message without the password", () => {
    for (const url of [
      "http://secret@host",
      "redis://:secret@host/db",
      "secret",
      "redis://",
      "unix://",
      "redis://h/-1",
    ]) {
      assert.throws(
        () => clientOptions(url),
        (error: ServerError) => error.code === "config_invalid" && !error.message.includes("secret"),
        url,
      );
    }
  });

  it("is connected over TCP and over a socket, with the password", { skip: lacksRedis }, async () => {
    const server = await startRedis({ password: "open sesame" });
    try {
      const bySocket = `unix://:${encodeURIComponent("open sesame")}@localhost${server.socket}?db=1`;
      for (const url of [server.url, bySocket]) {
        const connection = await RedisConnection.open(url, storeScripts, () => {});
        assert.equal(await connection.command("SET", "key", "value").then(String), "OK");
        connection.close();
      }
      const wrong = server.url.replace("open%20sesame", "wrong-word");
      await assert.rejects(
        RedisConnection.open(wrong, storeScripts, () => {}),
        (error: ServerError) => error.code === "config_invalid" && !/wrong-word/.test(error.message),
      );
      await server.kill();
      await assert.rejects(
        RedisConnection.open(server.url, storeScripts, () => {}),
        /ECONNREFUSED/,
      );
    } finally {
      await server.stop();
    }
  });
});
