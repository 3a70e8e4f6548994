// Hostile HTTP responses: each makes the fetch fail within its limits, with an error that says why.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { brotliCompressSync, constants, deflateSync, gzipSync } from "node:zlib";
import { ServerError } from "../../../../runtime/errors.ts";
import { GuardedFetcher } from "../../../../runtime/web/guarded-fetch.ts";
import type { FetchLimits } from "../../../../runtime/web/limits.ts";
import { fetchText, guardOf, limits, never, startHttp, startRaw } from "./rig.ts";

const zeros = Buffer.alloc(2 * limits.bodyBytes);
const brotli = brotliCompressSync(zeros, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } });
const quick = { headersMs: 300, totalMs: 800 };

function head(...fields: readonly string[]): string {
  return ["HTTP/1.1 200 OK", "content-type: text/plain", ...fields, "", ""].join("\r\n");
}

/** Writes `piece` repeatedly: every `everyMs` milliseconds, or as fast as the client reads if `everyMs` is 0. */
function flood(socket: Socket, piece: string, everyMs = 0): void {
  const write = (): void => {
    if (socket.destroyed) return;
    if (everyMs > 0) {
      socket.write(piece);
      setTimeout(write, everyMs);
    } else if (socket.write(piece)) setImmediate(write);
    else socket.once("drain", write);
  };
  write();
}

interface Attack {
  readonly name: string;
  readonly answer: (socket: Socket) => void;
  readonly expected: RegExp;
  readonly limits?: Partial<FetchLimits>;
}

const attacks: readonly Attack[] = [
  {
    name: "a gzip bomb",
    answer: (socket) => socket.end(Buffer.concat([Buffer.from(head("content-encoding: gzip")), gzipSync(zeros)])),
    expected: /at most 262144 bytes/,
  },
  {
    name: "a deflate bomb",
    answer: (socket) => socket.end(Buffer.concat([Buffer.from(head("content-encoding: deflate")), deflateSync(zeros)])),
    expected: /at most 262144 bytes/,
  },
  {
    name: "a brotli bomb",
    answer: (socket) => socket.end(Buffer.concat([Buffer.from(head("content-encoding: br")), brotli])),
    expected: /at most 262144 bytes/,
  },
  {
    name: "a gzip body that is cut off",
    answer: (socket) =>
      socket.end(
        Buffer.concat([Buffer.from(head("content-encoding: gzip")), gzipSync("x".repeat(5000)).subarray(0, 20)]),
      ),
    expected: /unexpected end of file/,
  },
  {
    name: "an encoding inside an encoding",
    answer: (socket) => socket.end(head("content-encoding: gzip, gzip")),
    expected: /expected the content encoding gzip, deflate or br; got "gzip, gzip"/,
  },
  {
    name: "a body without an end",
    answer: (socket) => {
      socket.write(head());
      flood(socket, "x".repeat(4096));
    },
    expected: /at most 65536 bytes/,
  },
  {
    name: "chunks without an end",
    answer: (socket) => {
      socket.write(head("transfer-encoding: chunked"));
      flood(socket, `1000\r\n${"x".repeat(4096)}\r\n`);
    },
    expected: /at most 65536 bytes/,
  },
  {
    name: "a body announced as too large",
    answer: (socket) => socket.write(head("content-length: 99999999")),
    expected: /at most 65536 bytes, got 99999999/,
  },
  {
    name: "a body shorter than announced",
    answer: (socket) => socket.end(`${head("content-length: 100")}short`),
    expected: /cannot be fetched/,
  },
  {
    name: "two lengths",
    answer: (socket) => socket.end(`${head("content-length: 5", "content-length: 6")}hello!`),
    expected: /cannot be fetched/,
  },
  {
    name: "a length that is no number",
    answer: (socket) => socket.end(`${head("content-length: 1e9")}x`),
    expected: /cannot be fetched/,
  },
  {
    name: "a body that drips",
    answer: (socket) => {
      socket.write(head("content-length: 1000"));
      flood(socket, "x", 50);
    },
    expected: /no whole response came within 800 ms/,
    limits: quick,
  },
  {
    name: "a body slower than the minimum speed",
    answer: (socket) => {
      socket.write(head("content-length: 60000"));
      flood(socket, "xxxx", 50);
    },
    expected: /at least 2048 bytes a second/,
    limits: { totalMs: 10_000, minBytesPerSecond: 2048 },
  },
  { name: "no response", answer: () => {}, expected: /no response came within 300 ms/, limits: quick },
  {
    name: "headers that drip",
    answer: (socket) => {
      socket.write("HTTP/1.1 200 OK\r\nx-a: ");
      flood(socket, "a", 20);
    },
    expected: /no response came within 300 ms/,
    limits: quick,
  },
  {
    name: "headers without an end",
    answer: (socket) => {
      socket.write("HTTP/1.1 200 OK\r\n");
      flood(socket, `x-a: ${"a".repeat(1000)}\r\n`);
    },
    expected: /cannot be fetched: .*header/i,
  },
  {
    name: "too many headers",
    answer: (socket) => socket.end(head(...Array.from({ length: 300 }, (_, i) => `x-${i}: 1`))),
    expected: /at most 128 response headers; got 30/,
  },
  {
    name: "a flood of 100 Continue",
    answer: (socket) => flood(socket, "HTTP/1.1 100 Continue\r\n\r\n"),
    expected: /informational responses/,
  },
  {
    name: "a flood of 103 Early Hints",
    answer: (socket) => flood(socket, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
    expected: /informational responses/,
  },
  {
    name: "a switch of protocols",
    answer: (socket) => socket.write("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"),
    expected: /cannot be fetched|another protocol/,
  },
  { name: "HTTP/0.9", answer: (socket) => socket.end("<html>old</html>"), expected: /cannot be fetched/ },
  {
    name: "binary garbage",
    answer: (socket) => socket.end(Buffer.from([0, 255, 1, 2, 3])),
    expected: /cannot be fetched/,
  },
  { name: "a reset connection", answer: (socket) => socket.resetAndDestroy(), expected: /cannot be fetched/ },
  { name: "an end without an answer", answer: (socket) => socket.end(), expected: /cannot be fetched/ },
  {
    name: "a reset in the body",
    answer: (socket) => socket.write(`${head("content-length: 100")}x`, () => socket.resetAndDestroy()),
    expected: /cannot be fetched/,
  },
];

describe("a fetch fails after", () => {
  for (const { name, answer, expected, limits: changes = {} } of attacks) {
    it(name, async () => {
      const server = await startRaw((socket) => socket.once("data", () => answer(socket)));
      const startMs = performance.now();
      try {
        await assert.rejects(fetchText(server.url, {}, changes), { code: "invalid_value", message: expected });
        assert.ok(performance.now() - startMs < 6000);
      } finally {
        await server.stop();
      }
    });
  }

  it("a certificate that nobody trusts", async (test) => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-tls-"));
    const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
    try {
      execFileSync(
        "openssl",
        [
          "req",
          "-x509",
          "-newkey",
          "rsa:2048",
          "-nodes",
          "-subj",
          "/CN=here.test",
          "-days",
          "1",
          "-keyout",
          key,
          "-out",
          cert,
        ],
        { stdio: "ignore" },
      );
    } catch {
      test.skip("openssl is not installed");
      return;
    }
    const server = createServer({ key: readFileSync(key), cert: readFileSync(cert) }, (_request, response) =>
      response.end("x"),
    );
    rmSync(folder, { recursive: true });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    try {
      await assert.rejects(fetchText(`https://here.test:${port}/`, { "here.test": ["127.0.0.1"] }), /certificate/);
    } finally {
      server.close();
    }
  });
});

describe("a fetch reads", () => {
  const bodies = {
    identity: Buffer.from("hello"),
    gzip: gzipSync("hello"),
    deflate: deflateSync("hello"),
    br: brotliCompressSync("hello"),
  };
  it("bodies in all encodings that it accepts", async () => {
    const server = await startHttp(({ url = "" }, response) => {
      const encoding = url.slice(1) as keyof typeof bodies;
      response.writeHead(200, { "content-encoding": encoding }).end(bodies[encoding]);
    });
    try {
      for (const encoding of Object.keys(bodies)) assert.equal(await fetchText(`${server.url}/${encoding}`), "hello");
    } finally {
      await server.stop();
    }
  });

  it("bodies up to the limit, and no byte more", async () => {
    const server = await startHttp(({ url = "" }, response) => response.end("x".repeat(Number(url.slice(1)))));
    try {
      assert.equal((await fetchText(`${server.url}/${limits.sentBytes}`)).length, limits.sentBytes);
      await assert.rejects(fetchText(`${server.url}/${limits.sentBytes + 1}`), /at most 65536 bytes/);
    } finally {
      await server.stop();
    }
  });

  it("no body whose head is refused, and closes the connection", async () => {
    let closed: (value: unknown) => void = () => {};
    const isClosed = new Promise((resolve) => {
      closed = resolve;
    });
    const server = await startRaw((socket) => {
      socket.on("close", closed);
      socket.write(head("transfer-encoding: chunked"));
      flood(socket, `1000\r\n${"x".repeat(4096)}\r\n`);
    });
    const checkHead = (): never => {
      throw new ServerError("invalid_value", "expected another type");
    };
    const fetcher = new GuardedFetcher(guardOf({}, () => true));
    await assert.rejects(fetcher.fetch({ url: server.url, limits, checkHead }, never), /expected another type/);
    await isClosed;
    await server.stop();
  });

  it("nothing after it was cancelled", async () => {
    const server = await startRaw((socket) => socket.write(head("content-length: 100")));
    const cancel = new AbortController();
    const fetcher = new GuardedFetcher(guardOf({}, () => true));
    const fetching = fetcher.fetch({ url: server.url, limits, checkHead: () => {} }, cancel.signal);
    setTimeout(() => cancel.abort(), 50);
    await assert.rejects(fetching, { code: "cancelled" });
    await server.stop();
  });
});
