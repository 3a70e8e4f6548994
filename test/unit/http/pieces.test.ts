import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { StreamSink } from "../../../http/edge.ts";
import { Exchange } from "../../../http/exchange.ts";
import { sendPieces } from "../../../http/pieces.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { recordingLog } from "../../fixtures/http-server.ts";

const limits = { keepAliveMs: 0, readerStallMs: 20 };
const headers = { "content-type": "application/json" };

/** An exchange whose reader takes `room` pieces, and more only when it is told to. */
function rig({ room = Number.POSITIVE_INFINITY } = {}) {
  const calls: string[] = [];
  const client = new AbortController();
  const log = recordingLog();
  const reader = { room, wake: () => {} };
  const sink: StreamSink = {
    write: (piece) => {
      calls.push(Buffer.from(piece).toString());
      reader.room--;
      return reader.room > 0;
    },
    keepOpen: () => {},
    drained: () =>
      new Promise((resolve) => {
        reader.wake = resolve;
      }),
    end: () => void calls.push("END"),
    abort: () => {
      calls.push("CUT");
      client.abort();
      reader.wake();
    },
  };
  const request = {
    method: "GET",
    path: "/",
    query: "",
    headers: new Map<string, string>(),
    body: new Uint8Array(0),
    address: "",
    signal: client.signal,
  };
  const reply = {
    send: (status: number, _headers: object, body: string | Uint8Array) => void calls.push(`SENT ${status} ${body}`),
    stream: (status: number) => {
      calls.push(`STREAM ${status}`);
      return sink;
    },
  };
  const exchange = new Exchange(request, reply, { log, disableRequestIdHeader: false, observers: [] });
  const send = (pieces: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>) =>
    sendPieces(exchange, 201, headers, pieces, limits);
  return { calls, client, log, reader, send };
}

describe("a body in pieces", () => {
  it("of none or one is sent whole", async () => {
    const { calls, send } = rig();
    await send([]);
    await send(["a"]);
    await send([Buffer.from("b")]);
    assert.deepEqual(calls, ["SENT 201 ", "SENT 201 a", "SENT 201 b"]);
  });

  it("of several is streamed, texts and bytes, whether they come at once or later", async () => {
    const { calls, send } = rig();
    await send(["a", Buffer.from("b"), "c"]);
    await send(
      (async function* () {
        yield "d";
        yield "e";
      })(),
    );
    assert.deepEqual(calls, ["STREAM 201", "a", "b", "c", "END", "STREAM 201", "d", "e", "END"]);
  });

  it("gives others of the thread a turn between two of them", async () => {
    const { calls, send } = rig();
    const turns = setInterval(() => calls.push("turn"), 0);
    await send(
      (function* () {
        for (let i = 0; i < 20; i++) {
          const end = performance.now() + 2;
          while (performance.now() < end);
          yield "p";
        }
      })(),
    );
    clearInterval(turns);
    assert.doesNotMatch(calls.join(" "), /p p p p/);
  });

  it("makes a piece only when its reader has taken the one before", async () => {
    const { calls, reader, send } = rig({ room: 3 });
    let made = 0;
    const sending = send(
      (function* () {
        for (; made < 6; made++) yield String(made);
      })(),
    );
    await new Promise((resolve) => setTimeout(resolve, 5));
    assert.deepEqual([made, calls.length], [2, 4]);
    reader.room = 100;
    reader.wake();
    await sending;
    assert.equal(calls.at(-1), "END");
  });

  it("is cut off where its reader stalls", async () => {
    const { calls, send } = rig({ room: 2 });
    let isClosed = false;
    await send(
      (function* () {
        try {
          while (true) yield "p";
        } finally {
          isClosed = true;
        }
      })(),
    );
    assert.deepEqual(calls, ["STREAM 201", "p", "p", "CUT"]);
    assert.ok(isClosed);
  });

  it("that fails before two pieces are there is refused, and nothing of it is sent; later it is cut off, and logged", async () => {
    for (const good of [0, 1]) {
      const { calls, send } = rig();
      await assert.rejects(send(failing(good)), ServerError);
      assert.deepEqual(calls, []);
    }
    const { calls, log, send } = rig();
    await send(failing(3));
    assert.deepEqual(calls, ["STREAM 201", "p", "p", "p", "CUT"]);
    assert.equal(log.lines.length, 1);
  });

  it("goes no further when the client has left", async () => {
    const { calls, client, send } = rig();
    await send(
      (function* () {
        for (let i = 0; ; i++) {
          if (i === 3) client.abort();
          yield "p";
        }
      })(),
    );
    assert.ok(calls.length <= 5 && !calls.includes("END"));
    await send(["late", "later"]);
    assert.ok(!calls.includes("late"));
  });
});

function* failing(good: number): Generator<string> {
  for (let i = 0; i < good; i++) yield "p";
  throw new ServerError("peer_gone", "gone");
}
