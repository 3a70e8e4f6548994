import assert from "node:assert/strict";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Exchange, jsonHeaders } from "../../../../http/exchange.ts";
import type { StreamSink } from "../../../../http/server/edge.ts";
import { type EdgeName, type Listener, listen } from "../../../../http/server/listen.ts";
import type { Piece } from "../../../../http/server/write-piece.ts";
import { type Pieces, sendPieces } from "../../../../http/shared/answer/pieces.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { type LogLine, loadableEdges, recordingLog } from "../../../fixtures/http-server.ts";

const readerStallMs = 300;
const pieceBytes = 200_000;

interface Served {
  readonly listener: Listener;
  readonly lines: readonly LogLine[];
  /** Resolves when the response has been sent or abandoned. */
  readonly done: Promise<void>;
}

/** Starts a server that responds to each request with the same pieces. */
async function serve(edge: EdgeName, pieces: () => Pieces): Promise<Served> {
  const log = recordingLog();
  let isDone: () => void = () => {};
  const done = new Promise<void>((resolve) => {
    isDone = resolve;
  });
  const handle: Parameters<typeof listen>[0]["handle"] = (request, reply) => {
    const exchange = new Exchange(request, reply, {
      log,
      disableRequestIdHeader: true,
      corsOrigins: null,
      observers: [],
    });
    sendPieces(exchange, jsonHeaders, pieces(), { readerStallMs })
      .catch((error) => exchange.fail(error))
      .finally(isDone);
  };
  const listener = await listen({ handle }, { host: "127.0.0.1", port: 0, edge, log });
  return { listener, lines: log.lines, done };
}

async function stop({ listener }: Served): Promise<void> {
  listener.forceClose();
  await listener.closed;
}

async function open({ listener }: Served): Promise<IncomingMessage> {
  const [response] = await once(get({ host: "127.0.0.1", port: listener.port, agent: false }), "response");
  return response;
}

async function read(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const piece = (n: number): Buffer => Buffer.alloc(pieceBytes, n % 256);

/** Counts the requested pieces, and can fail after some of them. */
class Source {
  asked = 0;
  hasEnded = false;

  async *pieces(count: number, error?: Error): AsyncGenerator<Piece> {
    try {
      for (; this.asked < count; this.asked++) yield piece(this.asked);
      if (error !== undefined) throw error;
    } finally {
      this.hasEnded = true;
    }
  }
}

for (const edge of loadableEdges()) {
  describe(`an answer in pieces on the ${edge} edge`, () => {
    it("arrives complete, as bytes and text, and a single piece with its length", async () => {
      const text = `x${"\u{1f600}é".repeat(300_000)}`;
      for (const [pieces, expected] of [
        [[piece(1), piece(2), "end"], Buffer.concat([piece(1), piece(2), Buffer.from("end")])],
        [[text], Buffer.from(text)],
        [["short"], Buffer.from("short")],
        [["", new Uint8Array(0)], Buffer.alloc(0)],
      ] as const) {
        const served = await serve(edge, () => pieces);
        const response = await open(served);
        assert.deepEqual([response.statusCode, response.headers["content-type"]], [200, "application/json"]);
        if (expected.length < 10) assert.equal(response.headers["content-length"], String(expected.length));
        assert.ok(expected.equals(await read(response)));
        await stop(served);
      }
    });

    it("is generated no faster than its client reads", async () => {
      const source = new Source();
      const count = 500;
      const served = await serve(edge, () => source.pieces(count));
      const response = await open(served);
      response.pause();
      await sleep(100);
      assert.ok(source.asked < 100, `${source.asked} of ${count} pieces`);
      assert.equal((await read(response)).length, count * pieceBytes);
      await stop(served);
    });

    it("is aborted if its client does not read, or disconnects", async () => {
      for (const leaves of [false, true]) {
        const source = new Source();
        const served = await serve(edge, () => source.pieces(500));
        const socket = connect(served.listener.port, "127.0.0.1");
        socket.write("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
        socket.on("error", () => {});
        socket.pause();
        await sleep(50);
        if (leaves) socket.destroy();
        await served.done;
        assert.ok(source.hasEnded && source.asked < 500);
        socket.destroy();
        await stop(served);
      }
    });

    it("has the status of an early failure, and is aborted on a later one", async () => {
      const early = await serve(edge, () => new Source().pieces(0, new ServerError("not_found", "gone")));
      assert.equal((await open(early)).statusCode, 404);
      await stop(early);
      for (const error of [new ServerError("not_found", "gone"), new TypeError("a mistake")]) {
        const served = await serve(edge, () => new Source().pieces(5, error));
        const response = await open(served);
        assert.equal(response.statusCode, 200);
        await assert.rejects(read(response));
        assert.equal(
          served.lines.filter(({ level }) => level === "error").length,
          error instanceof ServerError ? 0 : 1,
        );
        await stop(served);
      }
    });
  });
}

/** Returns an exchange whose reader accepts `room` pieces, and more only when the test says so. */
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
    bodyBytes: 0,
    releaseBody: () => {},
    holdBody: () => () => {},
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
  const exchange = new Exchange(request, reply, {
    log,
    disableRequestIdHeader: false,
    corsOrigins: null,
    observers: [],
  });
  const send = (pieces: Pieces) => sendPieces(exchange, jsonHeaders, pieces, { readerStallMs });
  return { calls, client, log, reader, send };
}

describe("a body in pieces", () => {
  it("yields the thread between two pieces", async () => {
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

  it("generates a piece only after the previous one was read", async () => {
    const { calls, reader, send } = rig({ room: 3 });
    let made = 0;
    const sending = send(
      (function* () {
        for (; made < 6; made++) yield String(made);
      })(),
    );
    while (calls.length < 4) await new Promise((resolve) => setTimeout(resolve, 1));
    // During these turns, a sender that does not wait would produce more pieces.
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([made, calls.length], [2, 4]);
    reader.room = 100;
    reader.wake();
    await sending;
    assert.equal(calls.at(-1), "END");
  });
});
