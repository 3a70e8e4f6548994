import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { afterEach, describe, it } from "node:test";
import { HttpClient } from "../../../bench/serving/client/http-client.ts";

const chunked =
  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
const request = Buffer.from("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");

const cleanups: (() => void)[] = [];
afterEach(() => {
  for (const cleanup of cleanups.splice(0)) cleanup();
});

/** Creates a server that calls `onRequest` for each request, and a client that is connected to it. */
async function pair(onRequest: (socket: Socket, connection: number) => void) {
  let connections = 0;
  const server = createServer((socket) => {
    const connection = ++connections;
    socket.on("error", () => {});
    socket.on("data", () => onRequest(socket, connection));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = new HttpClient(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  cleanups.push(() => {
    client.close();
    server.close();
  });
  return { client, connectionCount: () => connections };
}

async function exchange(client: HttpClient) {
  const answer = { code: 0, isStream: false, text: "" };
  await client.exchange(request, {
    head: (code, isStream) => Object.assign(answer, { code, isStream }),
    body: (data, from, to) => {
      answer.text += data.toString("latin1", from, to);
    },
  });
  return answer;
}

describe("the load generator's HTTP client", () => {
  it("sends one request after another on one connection", async () => {
    const { client, connectionCount } = await pair((socket) => socket.write(chunked));
    const expected = { code: 200, isStream: true, text: "ok" };
    assert.deepEqual([await exchange(client), await exchange(client)], [expected, expected]);
    assert.equal(connectionCount(), 1);
  });

  it("reads a response that arrives byte by byte", async () => {
    const { client } = await pair(async (socket) => {
      for (const byte of "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nfull") {
        socket.write(byte);
        await new Promise(setImmediate);
      }
    });
    assert.deepEqual(await exchange(client), { code: 429, isStream: false, text: "full" });
  });

  it("retries on a new connection if the server has silently closed the old one", async () => {
    const { client, connectionCount } = await pair((socket) => socket.end(chunked));
    assert.equal((await exchange(client)).text, "ok");
    assert.equal((await exchange(client)).text, "ok");
    assert.equal(connectionCount(), 2);
  });

  it("retries only once if the old connection ends without a response", async () => {
    const { client, connectionCount } = await pair((socket, connection) =>
      connection === 1 && socket.bytesWritten === 0 ? socket.write(chunked) : socket.end(),
    );
    await exchange(client);
    await assert.rejects(exchange(client), /closed before the answer's end/);
    assert.equal(connectionCount(), 2);
  });

  it("fails when the connection ends in the middle of an answer", async () => {
    const { client, connectionCount } = await pair((socket) => socket.end(chunked.slice(0, -5)));
    await assert.rejects(exchange(client), /closed before the answer's end/);
    assert.equal(connectionCount(), 1);
  });

  it("treats the end of the connection as the end of a response without a length", async () => {
    const { client } = await pair((socket) => socket.end("HTTP/1.1 200 OK\r\n\r\nall"));
    assert.equal((await exchange(client)).text, "all");
  });
});
