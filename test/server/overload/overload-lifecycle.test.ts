// Errors that clients get while the server is unavailable: before the model is loaded, after shutdown has begun, and when the
// memory for request bodies is full.
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { KeptConnection, openUnfinishedPost } from "../../fixtures/overload/raw-client.ts";
import { startCommand, startServer } from "../../fixtures/serve.ts";

const path = "/v1/chat/completions";
const mebibyte = 2 ** 20;
const small = ["--threads", "1", "--max-seqs", "2", "--max-model-len", "8192"];

const bodyOf = (maxTokens: number) => ({ messages: "hi", max_tokens: maxTokens, ignore_eos: true });

interface Told {
  readonly status: number;
  readonly retryAfter: string | null;
  readonly code: string | undefined;
}

function send(url: string, body: string): Promise<Response> {
  return fetch(url + path, { method: "POST", headers: { "content-type": "application/json" }, body });
}

async function post(url: string, body: string): Promise<Told> {
  const reply = await send(url, body);
  const { error } = (await reply.json()) as { error?: { code: string } };
  return { status: reply.status, retryAfter: reply.headers.get("retry-after"), code: error?.code };
}

/** Repeats the request until the response has this status. */
async function postUntil(url: string, body: string, status: number): Promise<Told> {
  let told: Told | null = null;
  for (let attempt = 0; attempt < 300; attempt++) {
    told = await post(url, body);
    if (told.status === status) return told;
    await sleep(20);
  }
  return assert.fail(`it never answered ${status}; at last ${JSON.stringify(told)}`);
}

describe("a server whose model is being loaded", () => {
  it("responds with 503 and Retry-After until the model is loaded", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const { port } = taken.address() as AddressInfo;
    taken.close();
    await once(taken, "close");
    const argv = ["serve", "-m", await tinyModel(), "--host", "127.0.0.1", "--port", String(port), "--cpu", ...small];
    const starting = startCommand(argv);
    const url = `http://127.0.0.1:${port}`;
    const body = JSON.stringify(bodyOf(2));
    let first: Told | null = null;
    while (first === null) first = await post(url, body).catch(() => sleep(2, null));
    assert.deepEqual(first, { status: 503, retryAfter: "2", code: "model_loading" });
    const server = await starting;
    assert.equal((await post(url, body)).status, 200);
    await server.stop();
  });
});

describe("a server that is being stopped", () => {
  // Skipped on Node's HTTP server: it closes idle connections, so no client could receive the error.
  const skip = loadableEdges()[0] === "node" ? "only the node edge loads here" : false;

  it("answers a request on an open connection, closes it, and finishes running requests", { skip }, async () => {
    const server = await startServer(["-m", await tinyModel(), ...small, "--shutdown-deadline-secs", "300"]);
    const connection = new KeptConnection(server.url);
    assert.equal((await connection.get("/health")).status, 200);
    const length = 3000;
    const running = await send(server.url, JSON.stringify({ ...bodyOf(length), stream: true }));
    const stopped = server.stop();
    while (!server.output().includes("stopping")) await sleep(5);
    const { status, headers, body } = await connection.post(path, bodyOf(2));
    assert.deepEqual([status, headers.get("connection")], [200, "close"]);
    assert.equal(JSON.parse(body).usage.completion_tokens, 2);
    assert.match(await running.text(), new RegExp(`"completion_tokens":${length},.*\\n\\ndata: \\[DONE\\]\\n\\n$`));
    assert.deepEqual(await stopped, { code: 0, signal: null });
    connection.close();
  });
});

describe("the bodies of requests in flight", () => {
  for (const edge of loadableEdges()) {
    it(`have a total size limit on the ${edge} edge: what exceeds it is rejected with 429 until there is room`, async () => {
      const limit = ["--max-body-bytes-in-flight", String(2 * mebibyte), "--edge", edge];
      const server = await startServer(["-m", await tinyModel(), ...small, ...limit]);
      try {
        const request = JSON.stringify(bodyOf(2));
        const large = request.padEnd(1.2 * mebibyte);
        assert.equal((await post(server.url, large)).status, 200);
        // Sends a request whose body stays incomplete, so that it holds its memory. The server may reject this request instead of
        // the large one (`large`) if both arrive together; then it is sent again on a new connection.
        const openUnrefused = (): Socket => {
          const socket = openUnfinishedPost(server.url, mebibyte);
          socket.once("data", () => (unfinished = openUnrefused()));
          return socket;
        };
        let unfinished = openUnrefused();
        const refusal = await postUntil(server.url, large, 429);
        assert.equal(refusal.code, "queue_full");
        assert.match(refusal.retryAfter ?? "", /^[1-9]\d*$/);
        assert.equal((await post(server.url, request)).status, 200, "a small body had room");
        unfinished.destroy();
        await postUntil(server.url, large, 200);
      } finally {
        await server.stop();
      }
    });
  }
});
