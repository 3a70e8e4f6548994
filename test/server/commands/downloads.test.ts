// Models that clients download while the server runs, as Ollama's clients and the web UI do.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { type FakeHub, startFakeHub } from "../../fixtures/fakes/fake-hub.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

const repo = "acme/tiny-GGUF";
const name = `${repo}:f16`;

let hub: FakeHub;
let home = "";
let server: RunningServer;
before(async () => {
  hub = await startFakeHub();
  home = mkdtempSync(join(tmpdir(), "troupe-downloads-"));
  hub.repos.set(repo, new Map([["tiny-F16.gguf", readFileSync(await tinyModel())]]));
  hub.repos.set("acme/broken-GGUF", new Map([["broken-F16.gguf", Buffer.from("no model at all")]]));
  server = await start();
});
after(async () => {
  await server.stop();
  await hub.stop();
  rmSync(home, { recursive: true, force: true });
});

async function start(...more: string[]): Promise<RunningServer> {
  const flags = [
    "-m",
    await tinyModel(),
    "--engine",
    "wasm",
    "--threads",
    "1",
    "--max-seqs",
    "2",
    "--max-model-len",
    "256",
  ];
  const environment = {
    HF_ENDPOINT: hub.url,
    HF_HOME: join(home, "hf"),
    HF_TOKEN: "",
    XDG_CACHE_HOME: join(home, "cache"),
  };
  return await startServer([...flags, "--max-model-downloads", "2", ...more], environment);
}

async function call(method: string, path: string, body?: object, signal?: AbortSignal): Promise<Response> {
  return await fetch(`${server.url}${path}`, {
    method,
    headers: { "content-type": "application/json" },
    ...(body && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  });
}

async function lines(response: Response): Promise<Record<string, unknown>[]> {
  const text = await response.text();
  return text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}

async function modelIds(): Promise<string[]> {
  const { data } = (await (await call("GET", "/v1/models")).json()) as { data: { id: string; downloaded?: boolean }[] };
  return data.filter(({ downloaded }) => downloaded === true).map(({ id }) => id);
}

async function chat(model: string): Promise<Response> {
  return await call("POST", "/v1/chat/completions", {
    model,
    messages: [{ role: "user", content: "hi" }],
    max_tokens: 2,
  });
}

describe("a model that a client downloads", () => {
  it("is served when it is there, is listed, and answers", async () => {
    assert.equal((await chat(name)).status, 404);
    const response = await call("POST", "/api/pull", { model: `hf.co/${name}` });
    assert.match(response.headers.get("content-type") ?? "", /ndjson/);
    const received = await lines(response);
    assert.deepEqual(received.at(-1), { status: "success" });
    assert.deepEqual(await modelIds(), [name]);
    const tags = (await (await call("GET", "/api/tags")).json()) as { models: { name: string }[] };
    assert.ok(tags.models.some((model) => model.name === name));
    const answer = await chat(name);
    assert.equal(answer.status, 200, await answer.clone().text());
    // The configured models are unaffected.
    assert.equal((await chat("default")).status, 200);
  });

  it("is not fetched again", async () => {
    const before = hub.requests.length;
    assert.deepEqual(await lines(await call("POST", "/api/pull", { name })), [{ status: "success" }]);
    assert.equal(hub.requests.length, before);
  });

  it("is served by the next start too, and fetches nothing", async () => {
    await server.stop();
    const before = hub.requests.length;
    server = await start();
    assert.deepEqual(await modelIds(), [name]);
    assert.equal((await chat(name)).status, 200);
    assert.equal(hub.requests.length, before);
  });

  it("shows its progress to all clients that wait, continues while one does, and can be resumed", async () => {
    const big = "acme/big-GGUF";
    const bytes = Buffer.alloc(40 * 2 ** 20);
    readFileSync(await tinyModel()).copy(bytes);
    hub.repos.set(big, new Map([["big-F16.gguf", bytes]]));
    hub.fault = ({ host, method }) => (host === "cdn" && method === "GET" ? { dropAfter: 2 ** 20 } : null);
    const leaving = new AbortController();
    const first = call("POST", "/api/pull", { model: big }, leaving.signal).then((response) => response.text());
    const second = call("POST", "/api/pull", { model: big, stream: false });
    const seen = await untilDownload((download) => download.done_bytes > 0);
    assert.equal(seen.total_bytes, bytes.length);
    leaving.abort();
    await assert.rejects(first);
    hub.fault = () => null;
    assert.equal((await second).status, 200);
    assert.deepEqual(await modelIds(), [name, big]);
  });

  it("is removed with its files, but only if it was downloaded", async () => {
    const folder = join(home, "hf", "hub", "models--acme--tiny-GGUF");
    assert.ok(existsSync(folder));
    const [configured = ""] = ((await (await call("GET", "/v1/models")).json()) as { data: { id: string }[] }).data
      .map(({ id }) => id)
      .filter((id) => id.startsWith("/"));
    const refused = await call("DELETE", "/api/delete", { model: configured });
    assert.equal(refused.status, 409, await refused.clone().text());
    assert.equal((await call("DELETE", "/api/delete", { model: name })).status, 200);
    assert.ok(!existsSync(folder));
    assert.equal((await chat(name)).status, 404);
    assert.equal((await call("DELETE", "/api/delete", { model: name })).status, 404);
  });

  it("finishes its requests before it is removed, may be downloaded again meanwhile, and its tokens stay counted", async () => {
    assert.equal((await call("POST", "/api/pull", { model: name, stream: false })).status, 200);
    assert.equal((await chat(name)).status, 200);
    const before = await tokensCounted();
    assert.ok(before > 0);
    const long = call("POST", "/v1/completions", { model: name, prompt: "a", max_tokens: 200, ignore_eos: true });
    await new Promise((resolve) => setTimeout(resolve, 100));
    const removed = call("DELETE", "/api/delete", { model: name });
    const again = call("POST", "/api/pull", { model: name, stream: false });
    assert.deepEqual([(await long).status, (await removed).status, (await again).status], [200, 200, 200]);
    assert.equal((await chat(name)).status, 200);
    assert.ok((await tokensCounted()) > before);
    assert.equal((await call("DELETE", "/api/delete", { model: name })).status, 200);
    assert.ok((await tokensCounted()) > before);
  });
});

describe("a download that is impossible", () => {
  it("is rejected with a specific error: paths, other programs' models, unknown and broken models", async () => {
    const refusals: readonly [string, number, RegExp][] = [
      ["/etc/passwd", 400, /expected owner\/name/],
      ["../../secret.gguf", 400, /expected owner\/name/],
      [await tinyModel(), 400, /expected owner\/name/],
      ["ollama:llama3", 400, /expected owner\/name/],
      ["", 400, /got none/],
      ["x".repeat(5000), 400, /expected owner\/name/],
      ["acme/nothing-GGUF", 400, /is not a model on the hub/],
      ["acme/broken-GGUF", 400, /broken-F16\.gguf/],
    ];
    for (const [model, status, message] of refusals) {
      const response = await call("POST", "/api/pull", { model });
      const { error } = (await response.json()) as { error: string };
      assert.match(error, message, model);
      assert.ok(response.status >= status && response.status < 600, `${model}: ${response.status}`);
    }
    assert.deepEqual(
      (await modelIds()).filter((id) => /nothing|broken/.test(id)),
      [],
    );
  });
});

async function tokensCounted(): Promise<number> {
  const text = await (await call("GET", "/metrics")).text();
  return Number(/^service_tokens_processed_total (\d+)$/m.exec(text)?.[1] ?? 0);
}

interface WireDownload {
  readonly model: string;
  readonly done_bytes: number;
  readonly total_bytes: number | null;
}

async function untilDownload(isWanted: (download: WireDownload) => boolean): Promise<WireDownload> {
  for (let tries = 0; tries < 200; tries++) {
    const { data } = (await (await call("GET", "/v1/system/downloads")).json()) as { data: WireDownload[] };
    const found = data.find(isWanted);
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return assert.fail("no download in progress shows progress");
}
