// LoRA adapters over HTTP: the real server with a tiny model, on each engine. The weights are random, so these tests do not
// check the adapters' effect on the output; the parity tests do.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { writeGgufAdapter, writePeftAdapter } from "../fixtures/lora/lora.ts";
import { tinyModel } from "../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../fixtures/serve.ts";

type Json = ReturnType<typeof JSON.parse>;

interface Reply {
  readonly status: number;
  readonly body: Json;
}

const allowed = { SERVICE_ALLOW_RUNTIME_LORA_UPDATING: "on" };
const flags = ["--max-model-len", "512", "--max-seqs", "4", "--threads", "1"];
const hexDigits = /^[0-9a-f]{64}$/;

/** Writes a folder of adapters, and an adapter outside that folder. */
async function writeAdapters(modelPath: string) {
  const outside = mkdtempSync(join(tmpdir(), "troupe-lora-"));
  const root = join(outside, "root");
  await writePeftAdapter(join(root, "one"), { modelPath, seed: 1 });
  await writePeftAdapter(join(root, "two"), { modelPath, seed: 2, targets: "all-linear" });
  await writePeftAdapter(join(root, "wide"), { modelPath, seed: 3, rank: 64 });
  await writeGgufAdapter(join(root, "three.gguf"), { modelPath, seed: 3 });
  await writePeftAdapter(join(outside, "secret"), { modelPath, seed: 4 });
  symlinkSync(join(outside, "secret"), join(root, "link"));
  return { outside, root };
}

function clientOf(url: () => string) {
  const send = async (method: string, path: string, body?: Json): Promise<Reply> => {
    const headers = { "content-type": "application/json" };
    const init = body === undefined ? { method } : { method, headers, body: JSON.stringify(body) };
    const response = await fetch(url() + path, init);
    return { status: response.status, body: await response.json() };
  };
  const post = (path: string, body: Json) => send("POST", path, body);
  return {
    get: (path: string) => send("GET", path),
    post,
    load: (body: Json) => post("/v1/load_lora_adapter", body),
    unload: (body: Json) => post("/v1/unload_lora_adapter", body),
    /** Sends a completion request. Returns the completion and its adapter generation (the hash of the adapter's content). */
    complete: async (body: Json) => {
      const asked = { prompt: "please write a short story", max_tokens: 8, temperature: 0, ignore_eos: true, ...body };
      const reply = await post("/v1/completions", asked);
      assert.equal(reply.status, 200, JSON.stringify(reply.body));
      return { text: reply.body.choices[0].text as string, generation: reply.body.adapter_generation as string };
    },
  };
}

/**
 * Returns the distinct adapter generations (hashes of the adapter's content) in the chunks of a stream. Calls `onBegun` at the
 * first chunk.
 */
async function streamed(url: string, body: Json, onBegun: () => Promise<void>): Promise<string[]> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ messages: "hi", stream: true, ignore_eos: true, ...body }),
  });
  assert.equal(response.status, 200);
  const generations = new Set<string>();
  let rest = "";
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines.filter((one) => one.startsWith("data: {"))) {
      const chunk = JSON.parse(line.slice("data: ".length));
      assert.equal(chunk.error, undefined);
      if (generations.size === 0) await onBegun();
      generations.add(chunk.adapter_generation);
    }
  }
  return [...generations];
}

for (const engine of ["wasm", "llama"] as const) {
  describe(`adapters on the ${engine} engine`, () => {
    let server: RunningServer;
    let outside: string;
    let base = "";
    const { get, post, load, unload, complete } = clientOf(() => server.url);

    before(async () => {
      const model = await tinyModel();
      const written = await writeAdapters(model);
      outside = written.outside;
      const { root } = written;
      const lora = ["--lora", `one=${join(root, "one")}`, "--lora-max-rank", "32"];
      const environment = { ...allowed, SERVICE_LORA_ADAPTER_ROOT: root };
      server = await startServer(["--engine", engine, "-m", model, ...lora, ...flags], environment);
      const { body } = await get("/v1/models");
      base = body.data[1].id;
    });
    after(async () => {
      await server.stop();
      rmSync(outside, { recursive: true, force: true });
    });

    it("are chosen by name, by generation, and as a model", async () => {
      const { body } = await get("/v1/lora_adapters");
      const [one] = body.data;
      assert.match(one.generation, hexDigits);
      assert.deepEqual([one.id, body.resident_generations, body.max_rank], ["one", 1, 32]);
      const plain = await complete({});
      assert.equal(plain.generation, undefined);
      const { data } = (await get("/v1/models")).body;
      const card = data.find(({ root }: Json) => root === "one");
      assert.deepEqual([card.parent, card.adapter_generation, card.status], [base, one.generation, "loaded"]);
      const ways: readonly Json[] = [
        { adapter: "one" },
        { adapter: { generation: one.generation } },
        { model: "one" },
        { model: card.id },
      ];
      for (const way of ways) {
        const answer = await complete(way);
        assert.equal(answer.generation, one.generation);
        assert.notEqual(answer.text, plain.text);
      }
      assert.equal((await complete({})).text, plain.text);
    });

    it("are loaded, replaced and unloaded", async () => {
      const first = await load({ lora_name: " new ", lora_path: "two" });
      assert.deepEqual([first.status, first.body.id, first.body.rank], [200, "new", 8]);
      const answered = await complete({ adapter: "new" });
      assert.equal(answered.generation, first.body.generation);
      const again = await load({ lora_name: "new", lora_path: "one" });
      assert.deepEqual([again.status, again.body.error.code], [409, "lora_adapter_already_loaded"]);
      const swap = { lora_name: "new", lora_path: "three.gguf", load_inplace: true };
      const stale = await load({ ...swap, expected_generation: "0".repeat(64) });
      assert.deepEqual([stale.status, stale.body.error.code], [409, "lora_generation_mismatch"]);
      const swapped = await load({ ...swap, expected_generation: first.body.generation });
      assert.equal(swapped.status, 200, JSON.stringify(swapped.body));
      assert.equal((await complete({ adapter: "new" })).generation, swapped.body.generation);
      const gone = await unload({ lora_name: "new" });
      assert.deepEqual([gone.status, gone.body], [200, swapped.body]);
      for (const stream of [false, true]) {
        const refused = await post("/v1/chat/completions", { messages: "hi", adapter: "new", stream });
        assert.deepEqual([refused.status, refused.body.error.param], [400, "adapter"]);
      }
      assert.equal((await unload({ lora_name: "new" })).body.error.code, "lora_adapter_not_found");
    });

    it("stay the same for running requests", async () => {
      const { body: before } = await load({ lora_name: "live", lora_path: "two" });
      let after = "";
      const seen = await streamed(server.url, { adapter: "live", max_tokens: 64 }, async () => {
        const swapped = await load({ lora_name: "live", lora_path: "three.gguf", load_inplace: true });
        after = swapped.body.generation;
        assert.equal((await complete({ adapter: "live" })).generation, after);
      });
      assert.deepEqual(seen, [before.generation]);
      assert.notEqual(after, before.generation);
      await unload({ lora_name: "live" });
      const { body } = await get("/v1/lora_adapters");
      assert.deepEqual([body.data.length, body.resident_generations, body.retired_generations], [1, 1, 0]);
    });

    it("that cannot be loaded say why, and change nothing", async () => {
      const { body: before } = await get("/v1/lora_adapters");
      const cases: readonly (readonly [string, number, string])[] = [
        ["nowhere", 404, "adapter_path_not_found"],
        ["../secret", 403, "adapter_path_forbidden"],
        ["/etc", 403, "adapter_path_forbidden"],
        ["link", 403, "adapter_path_forbidden"],
        [".", 404, "adapter_file_not_found"],
        ["wide", 409, "lora_rank_limit_exceeded"],
        ["one/adapter_config.json", 422, "invalid_lora_adapter"],
      ];
      for (const [path, status, code] of cases) {
        const refused = await load({ lora_name: "bad", lora_path: path });
        assert.deepEqual([refused.status, refused.body.error.code], [status, code], path);
      }
      assert.deepEqual((await get("/v1/lora_adapters")).body, before);
    });

    it("survive an unload and a reload of their model", async () => {
      const answered = await complete({ adapter: "one" });
      const unloaded = { status: 200, body: { model_id: base, status: "unloaded" } };
      assert.deepEqual(await post("/v1/models/unload", { model_id: "default" }), unloaded);
      assert.deepEqual(await post("/v1/models/status", { model_id: base }), unloaded);
      assert.deepEqual(await complete({ adapter: "one" }), answered);
      const loaded = { status: 200, body: { model_id: base, status: "loaded" } };
      assert.deepEqual(await post("/v1/models/reload", { model_id: base }), loaded);
      assert.deepEqual(await complete({ adapter: "one" }), answered);
    });
  });
}

describe("adapters on a server that does not let requests change them", () => {
  let server: RunningServer;
  const { get, load, complete } = clientOf(() => server.url);
  const folder = mkdtempSync(join(tmpdir(), "troupe-lora-"));

  before(async () => {
    const modelPath = await tinyModel();
    await writePeftAdapter(join(folder, "one"), { modelPath, seed: 1 });
    server = await startServer(["-m", modelPath, "--lora", `one=${join(folder, "one")}`, ...flags]);
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it("are used and listed, without their sources", async () => {
    assert.match((await complete({ adapter: "one" })).generation, hexDigits);
    const { body } = await get("/v1/lora_adapters");
    assert.deepEqual(Object.keys(body.data[0]).sort(), ["bytes", "generation", "id", "object", "rank"]);
  });

  it("have no routes to be loaded by", async () => {
    const { status, body } = await load({ lora_name: "x", lora_path: "y" });
    assert.deepEqual([status, body.error.code], [404, "not_found"]);
  });
});
