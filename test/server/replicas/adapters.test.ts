// LoRA adapters on several replicas: an adapter that a client loads or unloads on one replica is loaded or unloaded on all.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { writePeftAdapter } from "../../fixtures/lora/lora.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";
import { type RedisServer, startRedis } from "../../fixtures/store/redis.ts";
import { lacksRedis } from "../../fixtures/store/redis-stores.ts";
import { post } from "./rig.ts";

interface Listing {
  readonly data: readonly { readonly id: string; readonly generation: string }[];
  readonly failed: readonly {
    readonly id: string;
    readonly replica: string;
    readonly error: { readonly code: string };
  }[];
}

const flags = ["--max-model-len", "256", "--max-seqs", "2", "--threads", "1", "--enable-lora"];

describe("LoRA adapters on several replicas", { skip: lacksRedis, timeout: 120_000 }, () => {
  let redis: RedisServer;
  let folder: string;
  let modelPath: string;
  const servers: RunningServer[] = [];
  const url = (index: number): string => (servers[index] as RunningServer).url;
  const root = (index: number): string => join(folder, String(index));

  async function start(index: number): Promise<RunningServer> {
    return await startServer(["-m", modelPath, ...flags], {
      TROUPE_STATE_URL: redis.url,
      SERVICE_ALLOW_RUNTIME_LORA_UPDATING: "on",
      SERVICE_LORA_ADAPTER_ROOT: root(index),
    });
  }

  const load = (index: number, body: object): Promise<Response> => post(`${url(index)}/v1/load_lora_adapter`, body);
  const unload = (index: number, name: string): Promise<Response> =>
    post(`${url(index)}/v1/unload_lora_adapter`, { lora_name: name });
  const listed = async (index: number): Promise<Listing> =>
    (await (await fetch(`${url(index)}/v1/lora_adapters`)).json()) as Listing;
  const names = async (index: number): Promise<string[]> => (await listed(index)).data.map(({ id }) => id).sort();
  async function generation(index: number, adapter: string): Promise<string> {
    const reply = await post(`${url(index)}/v1/completions`, { prompt: "a story", max_tokens: 2, adapter });
    const body = (await reply.json()) as { adapter_generation?: string };
    assert.equal(reply.status, 200, JSON.stringify(body));
    return body.adapter_generation ?? "";
  }
  async function until(check: () => Promise<boolean>, what: string): Promise<void> {
    for (const limit = performance.now() + 15_000; !(await check()); await sleep(50)) {
      assert.ok(performance.now() < limit, `not in time: ${what}`);
    }
  }

  before(async () => {
    redis = await startRedis();
    folder = mkdtempSync(join(tmpdir(), "troupe-replica-lora-"));
    modelPath = await tinyModel();
    await writePeftAdapter(join(root(0), "one"), { modelPath, seed: 1 });
    await writePeftAdapter(join(root(0), "two"), { modelPath, seed: 2 });
    for (const index of [1, 2]) cpSync(root(0), root(index), { recursive: true });
    await writePeftAdapter(join(root(0), "only-here"), { modelPath, seed: 3 });
    await writePeftAdapter(join(root(0), "differs"), { modelPath, seed: 4 });
    await writePeftAdapter(join(root(1), "differs"), { modelPath, seed: 5 });
    servers.push(...(await Promise.all([start(0), start(1)])));
  });
  after(async () => {
    await Promise.all(servers.map((server) => server.stop()));
    await redis.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it("are loaded, replaced and unloaded on all by a request to one", async () => {
    const reply = await load(0, { lora_name: "style", lora_path: "one" });
    const first = (await reply.json()) as { generation: string };
    assert.equal(reply.status, 200);
    await until(async () => (await names(1)).includes("style"), "the other replica loads it");
    assert.equal(await generation(1, "style"), first.generation);
    const again = await load(1, { lora_name: "style", lora_path: "one" });
    assert.equal(((await again.json()) as { error: { code: string } }).error.code, "lora_adapter_already_loaded");
    const replaced = (await (await load(1, { lora_name: "style", lora_path: "two", load_inplace: true })).json()) as {
      generation: string;
    };
    assert.notEqual(replaced.generation, first.generation);
    await until(async () => (await generation(0, "style")) === replaced.generation, "the first replica replaces it");
    assert.equal((await load(0, { lora_name: "other", lora_path: "one" })).status, 200);
    await until(async () => (await names(1)).length === 2, "both adapters");
    assert.equal((await unload(1, "other")).status, 200);
    await until(async () => (await names(0)).join() === "style", "the first replica unloads it");
  });

  it("are loaded by a new replica before it serves", async () => {
    const late = await start(2);
    servers.push(late);
    assert.deepEqual(await names(2), ["style"]);
    assert.equal(await generation(2, "style"), await generation(0, "style"));
    await late.stop();
    servers.pop();
  });

  it("are listed with the replica and the reason where they cannot be loaded", async () => {
    assert.equal((await load(0, { lora_name: "local", lora_path: "only-here" })).status, 200);
    assert.equal((await load(0, { lora_name: "changed", lora_path: "differs" })).status, 200);
    await until(async () => (await listed(0)).failed.length === 2, "both failures");
    const { failed } = await listed(0);
    const codes = Object.fromEntries(failed.map(({ id, error }) => [id, error.code]));
    assert.deepEqual(codes, { local: "adapter_path_not_found", changed: "adapter_file_changed" });
    const [, replica] = /replica=(replica_\w+)/.exec((servers[1] as RunningServer).output()) ?? [];
    assert.ok(replica !== undefined && failed.every((each) => each.replica === replica));
    assert.deepEqual((await listed(1)).failed, failed);
    assert.deepEqual(await names(1), ["style"]);
    // An adapter can be unloaded even on a replica where loading it failed.
    assert.equal((await unload(1, "local")).status, 200);
    await until(async () => !(await names(0)).includes("local"), "it is unloaded everywhere");
    assert.equal((await unload(1, "local")).status, 404);
    // Once the files are equal on all replicas, the adapter is loaded without another request.
    cpSync(join(root(0), "differs"), join(root(1), "differs"), { recursive: true });
    await until(async () => (await names(1)).includes("changed"), "a failed adapter is tried again");
    assert.deepEqual((await listed(0)).failed, []);
  });
});
