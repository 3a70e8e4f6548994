// Request framing on raw sockets, on each HTTP server implementation ("edge") that loads here. A request whose end is ambiguous
// is rejected, and the bytes after it are not read. Also tests how long a request may take to arrive.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { listen } from "../../../http/server/listen.ts";
import { loadableEdges, recordingLog, startServer, type TestServer } from "../../fixtures/http-server.ts";

/** Time in ms to wait for a response that must not come. PATIENT_MS: time to wait for a response that must come. */
const QUIET_MS = 150;
const PATIENT_MS = 5000;

const post = "POST /v1/models/status HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";
const hidden = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";
const chunked = "2\r\n{}\r\n0\r\n\r\n";

/** Requests whose end is unambiguous. */
const clear: Readonly<Record<string, string>> = {
  "a length": `${post}Content-Length: 2\r\n\r\n{}`,
  "a length among white space": `${post}Content-Length: \t 2 \r\n\r\n{}`,
  "a length with zeros before it": `${post}Content-Length: 0002\r\n\r\n{}`,
  chunks: `${post}Transfer-Encoding: chunked\r\n\r\n${chunked}`,
  "a name in capitals": `${post}TRANSFER-ENCODING: chunked\r\n\r\n${chunked}`,
  "a GET with a body": `GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}`,
};

/** Ambiguous requests: two servers may disagree about where such a request ends. */
const unclear: Readonly<Record<string, string>> = {
  xchunked: `${post}Transfer-Encoding: xchunked\r\n\r\n${chunked}`,
  "another coding before chunked": `${post}Transfer-Encoding: gzip, chunked\r\n\r\n${chunked}`,
  "chunked twice in a header": `${post}Transfer-Encoding: chunked, chunked\r\n\r\n${chunked}`,
  "chunked in two headers": `${post}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n${chunked}`,
  "another coding after chunked": `${post}Transfer-Encoding: chunked, identity\r\n\r\n${chunked}`,
  "chunked in capitals": `${post}Transfer-Encoding: CHUNKED\r\n\r\n${chunked}`,
  "chunked in quotes": `${post}Transfer-Encoding: "chunked"\r\n\r\n${chunked}`,
  "chunked after a control character": `${post}Transfer-Encoding: \x0bchunked\r\n\r\n${chunked}`,
  "no coding in its header": `${post}Transfer-Encoding: \r\n\r\n${chunked}`,
  identity: `${post}Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}`,
  "white space before the colon": `${post}Transfer-Encoding : chunked\r\n\r\n${chunked}`,
  "chunks and a length": `${post}Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n${chunked}`,
  "a length and chunks": `${post}Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n${chunked}`,
  "two lengths": `${post}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`,
  "the same length twice": `${post}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}`,
  "a list of lengths": `${post}Content-Length: 2, 2\r\n\r\n{}`,
  "a length with a sign": `${post}Content-Length: +2\r\n\r\n{}`,
  "a negative length": `${post}Content-Length: -2\r\n\r\n{}`,
  "a length in hexadecimal": `${post}Content-Length: 0x2\r\n\r\n{}`,
  "a length with letters": `${post}Content-Length: 2a\r\n\r\n{}`,
  "a length with an exponent": `${post}Content-Length: 2e0\r\n\r\n{}`,
  "a length with a space": `${post}Content-Length: 2 2\r\n\r\n{}`,
  "no length in its header": `${post}Content-Length: \r\n\r\n{}`,
  "a length beyond 64 bits": `${post}Content-Length: 18446744073709551618\r\n\r\n{}`,
  "a header on two lines": `${post}X-A: b\r\n Content-Length: 2\r\n\r\n{}`,
  "a length on its second line": `${post}Content-Length:\r\n 2\r\n\r\n{}`,
  "lines that end in LF": "POST /v1/models/status HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}",
  "a header that ends in LF": `${post}X-A: b\nContent-Length: 2\r\n\r\n{}`,
  "a CR in a header": `${post}X-A: b\rContent-Length: 2\r\n\r\n{}`,
  "a NUL in a header": `${post}X-A: b\0\r\nContent-Length: 2\r\n\r\n{}`,
  "a header without a colon": `${post}Content-Length 2\r\n\r\n{}`,
  "a header without a name": `${post}: 2\r\nContent-Length: 2\r\n\r\n{}`,
  "two hosts": "GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
  "no host": "GET /health HTTP/1.1\r\nX: y\r\n\r\n",
  "a negative chunk": `${post}Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n`,
  "a chunk in hexadecimal with its mark": `${post}Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n`,
  "a chunk beyond 64 bits": `${post}Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n`,
  "chunks whose lines end in LF": `${post}Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n`,
  "another version": "GET /health HTTP/2.0\r\nHost: x\r\n\r\n",
};

/** Ambiguous requests that an implementation's HTTP parser may accept, so troupe's own code must reject them. */
const refusedByUs = ["xchunked", "another coding before chunked", "chunked in capitals", "two hosts"];

interface Connection {
  readonly text: string;
  readonly isClosed: boolean;
}

/**
 * Sends bytes. Returns the received bytes as soon as the connection closes, `isEnough` accepts them, or nothing has arrived
 * for a while.
 */
function send(server: TestServer, bytes: string, isEnough?: (text: string) => boolean) {
  return new Promise<Connection>((resolve) => {
    const socket = connect(server.listener.port, "127.0.0.1");
    let text = "";
    const end = (isClosed: boolean) => {
      clearTimeout(quiet);
      socket.destroy();
      resolve({ text, isClosed });
    };
    const quiet = setTimeout(() => end(false), isEnough === undefined ? QUIET_MS : PATIENT_MS);
    socket.on("data", (chunk) => {
      text += chunk.toString("latin1");
      quiet.refresh();
      if (isEnough?.(text)) end(false);
    });
    socket.on("error", () => {});
    socket.on("close", () => end(true));
    socket.write(Buffer.from(bytes, "latin1"));
  });
}

const statusesOf = ({ text }: Connection) => [...text.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => status);

for (const edge of loadableEdges()) {
  describe(`requests on a connection of the ${edge} edge`, async () => {
    const server = await startServer(edge);
    after(() => server.stop());

    for (const [what, bytes] of Object.entries(clear)) {
      it(`are separated by ${what}`, async () => {
        const answers = await send(server, bytes + hidden, (text) => text.includes('"not_found"'));
        assert.equal(statusesOf(answers)[1], "404", answers.text);
      });
    }

    for (const [what, bytes] of Object.entries(unclear)) {
      it(`are not separated by ${what}: what follows is not read`, async () => {
        const { text } = await send(server, bytes + hidden);
        assert.ok(text === "" || text.startsWith("HTTP/1.1 400 "), text);
        assert.doesNotMatch(text, /\/hidden/);
        assert.equal(text.split("HTTP/1.1 ").length - 1 <= 1, true, text);
      });
    }

    for (const what of refusedByUs) {
      it(`are rejected with a specific error, and the connection is closed, for ${what}`, async () => {
        const answer = await send(server, unclear[what] ?? "", () => false);
        assert.match(answer.text, /^HTTP\/1\.1 400 .*"code":"invalid_request"\}\}$/s);
        assert.match(answer.text, /\r\nconnection: close\r\n/i);
        assert.ok(answer.isClosed);
      });
    }

    it("do not include the lines after a body's last chunk", async () => {
      const trailers = `${post}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nxxGET: /hidden HTTP/1.1\r\nHost: x\r\n\r\n`;
      const { text } = await send(server, trailers);
      assert.doesNotMatch(text, /\/hidden/);
    });

    it("have at most 16 KiB of headers", async () => {
      const withHeader = (bytes: number) => `GET /health HTTP/1.1\r\nHost: x\r\nX-A: ${"a".repeat(bytes)}\r\n\r\n`;
      assert.deepEqual(statusesOf(await send(server, withHeader(15_000), (text) => text.endsWith("OK"))), ["200"]);
      const refused = await send(server, withHeader(17_000), () => false);
      assert.match(refused.text, /^HTTP\/1\.1 431 .*"code":"headers_too_large"\}\}$/s);
      assert.ok(refused.isClosed);
      const longPath = await send(server, `GET /${"a".repeat(60_000)} HTTP/1.1\r\nHost: x\r\n\r\n`, () => false);
      assert.match(longPath.text, /^HTTP\/1\.1 431 /);
    });
  });

  describe(`a request that arrives slowly at the ${edge} edge`, () => {
    it("is rejected when its body is not complete in time, however steadily it arrives", async () => {
      const { app, ...server } = await startServer(edge);
      const log = recordingLog();
      const listener = await listen(app, { host: "127.0.0.1", port: 0, edge, log, requestTimeoutMs: 400 });
      const socket = connect(listener.port, "127.0.0.1");
      let text = "";
      socket.on("data", (chunk) => {
        text += chunk;
      });
      socket.on("error", () => {});
      const closed = new Promise<void>((resolve) => socket.on("close", () => resolve()));
      socket.write(`${post}Content-Length: 100\r\n\r\n`);
      const pieces = setInterval(() => socket.write(" "), 20);
      const startedAt = performance.now();
      await closed;
      clearInterval(pieces);
      const ms = performance.now() - startedAt;
      assert.ok(ms > 350 && ms < 1800, `closed after ${ms} ms`);
      assert.match(text, /^HTTP\/1\.1 408 .*within 0\.4 s \(request_timeout_secs\).*"code":"request_timeout"\}\}$/s);
      listener.forceClose();
      await listener.closed;
      await server.stop();
    });

    it("is disconnected when its headers or its body stall for some 10 s", async () => {
      const server = await startServer(edge);
      const open = (bytes: string) =>
        new Promise<number>((resolve) => {
          const startedAt = performance.now();
          const socket = connect(server.listener.port, "127.0.0.1");
          socket.on("error", () => {});
          socket.resume();
          socket.on("close", () => resolve(performance.now() - startedAt));
          socket.write(bytes);
        });
      const ends = [
        open(""),
        open("GET /health HTTP/1.1\r\nHost: x\r\n"),
        open(`${post}Content-Length: 100\r\n\r\n{`),
        open(`${post}Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n`),
        open("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"),
      ];
      const late = sleep(16_000, null, { ref: false });
      const times = await Promise.race([Promise.all(ends), late]);
      assert.ok(times !== null, "still open after 16 s");
      for (const ms of times) assert.ok(ms > 7000, `cut off after ${ms} ms`);
      await server.stop();
    });
  });
}

describe("a health check of HTTP/1.0 on the node edge", async () => {
  const server = await startServer("node");
  after(() => server.stop());

  for (const headers of ["", "Host: x\r\n", "Connection: close\r\n", "Connection: keep-alive\r\n"]) {
    it(`is answered at once, with ${JSON.stringify(headers)}`, async () => {
      const answer = await send(server, `GET /health HTTP/1.0\r\n${headers}\r\n`, (text) => text.endsWith("OK"));
      assert.match(answer.text, /^HTTP\/1\.1 200 OK\r\n.*\r\n\r\nOK$/s);
    });
  }
});
