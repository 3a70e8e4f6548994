import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { listCachedModels } from "../../../../engines/files/hub/cached-models.ts";
import type { FetchProgress } from "../../../../engines/files/hub/download/fetch-options.ts";
import {
  type AdapterFetchOptions,
  resolveAdapter,
  resolveMixture,
} from "../../../../engines/files/hub/resolve-adapter.ts";
import { commit, limits, modelBytes, repo, useHub } from "./hub-rig.ts";

const rig = await useHub();
const { hub } = rig;
const snapshot = join(rig.cache, "models--acme--tiny-GGUF", "snapshots", commit);
const offline = { environment: { ...rig.environment, HF_HUB_OFFLINE: "1" } };
const config = Buffer.from('{"r":8}');
const weights = modelBytes();

const folder = mkdtempSync(join(tmpdir(), "adapters-"));
after(() => rmSync(folder, { recursive: true, force: true }));

function peft(name = "", bytes = weights): Readonly<Record<string, Buffer>> {
  return { [`${name}adapter_config.json`]: config, [`${name}adapter_model.safetensors`]: bytes };
}

function resolve(source = repo, options: AdapterFetchOptions = {}) {
  const onNotice = (message: string) => rig.notices.push(message);
  return resolveAdapter(source, { environment: rig.environment, limits, onNotice, ...options });
}

async function assertRefused(source: string, message: string | RegExp, options: AdapterFetchOptions = {}) {
  await assert.rejects(resolve(source, options), { name: "ServerError", message });
}

describe("an adapter of the hub", () => {
  it("is fetched as its two files and nothing else", async () => {
    rig.put({ ...peft(), "optimizer.pt": modelBytes(3), "README.md": Buffer.from("# lora") });
    const seen: FetchProgress[] = [];
    const found = await resolve(repo, { onProgress: (progress) => seen.push(progress) });
    assert.deepEqual(found, { path: snapshot, revision: "main" });
    assert.ok(readFileSync(join(snapshot, "adapter_config.json")).equals(config));
    assert.ok(readFileSync(join(snapshot, "adapter_model.safetensors")).equals(weights));
    assert.equal(rig.blobs().length, 2);
    const total = config.length + weights.length;
    assert.equal(seen.findLast(({ phase }) => phase === "download")?.doneBytes, total);
  });

  it("is not fetched again until the hub has a new one", async () => {
    rig.put(peft());
    await resolve();
    const fetched = hub.ranges().length;
    await resolve();
    assert.equal(hub.ranges().length, fetched);
    hub.commit = "d".repeat(40);
    rig.put(peft("", modelBytes(2)));
    const { path } = await resolve();
    assert.ok(readFileSync(join(path, "adapter_model.safetensors")).equals(modelBytes(2)));
  });

  it("is resumed where a fetch broke off", async () => {
    rig.put(peft());
    hub.fault = ({ host, range }) => (host === "cdn" && range === "bytes=4000-4499" ? { status: 404 } : null);
    await assert.rejects(resolve(repo, { limits: { ...limits, connections: 1 } }));
    hub.fault = () => null;
    hub.requests.length = 0;
    await resolve();
    const weights = hub.requests.filter(({ host, path }) => host === "cdn" && path.includes("adapter_model"));
    assert.deepEqual(
      weights.map(({ range }) => range),
      ["bytes=4000-4499"],
    );
  });

  it("may be a GGUF file, and one of several that is named", async () => {
    rig.put({ "a.gguf": modelBytes(1), "b.gguf": modelBytes(2), ...peft("c/") });
    assert.deepEqual(await resolve(`${repo}:b.gguf`), { path: join(snapshot, "b.gguf"), revision: "main" });
    assert.equal((await resolve(`${repo}:c`)).path, join(snapshot, "c"));
    assert.equal((await resolve(repo, { member: "c" })).path, join(snapshot, "c"));
    await assertRefused(repo, /^there are several LoRA adapters in "acme\/tiny-GGUF"; name one of them: "a\.gguf"/);
  });

  it("is taken from the revision that is set, or that its source names", async () => {
    hub.branches.push("v2");
    rig.put(peft());
    assert.equal((await resolve(repo, { revision: "v2" })).revision, "v2");
    assert.equal((await resolve(`${repo}@v2`)).revision, "v2");
    assert.equal((await resolve(`${repo}@v2`, { revision: "v2" })).revision, "v2");
    assert.ok(hub.requests.every(({ path }) => !path.includes("/revision/main")));
    await assertRefused(`${repo}@v2`, /names the revision v2 and "v3" is set; give one of them/, { revision: "v3" });
    await assertRefused(repo, /^revision expects a branch, a tag or a commit; got "\.\.\/x"$/, { revision: "../x" });
    await assertRefused(repo, /has no revision "v1"/, { revision: "v1" });
  });

  it("is used from the cache if the hub does not respond or must not be contacted", async () => {
    await assertRefused(repo, /the hub may not be asked \(HF_HUB_OFFLINE\), and the cache .* has no/, offline);
    rig.put(peft());
    await resolve();
    assert.equal((await resolve(repo, offline)).path, snapshot);
    hub.fault = () => ({ status: 503 });
    assert.equal((await resolve()).path, snapshot);
    assert.match(rig.notices.join(), /"acme\/tiny-GGUF" is used as the cache has it/);
  });

  it("is rejected before anything is fetched if it is not an adapter", async () => {
    rig.put({ "model.safetensors": weights, "config.json": config });
    await assertRefused(repo, /^there is no LoRA adapter in "acme\/tiny-GGUF": an adapter_config\.json/);
    assert.deepEqual(hub.ranges(), []);
  });

  it("is rejected before anything is fetched if it is too large", async () => {
    rig.put(peft());
    const maxFileBytes = weights.length - 1;
    const message = `"adapter_model.safetensors" of "acme/tiny-GGUF" has ${weights.length} bytes; up to ${maxFileBytes} are read: raise lora_max_bytes`;
    await assertRefused(repo, message, { maxFileBytes });
    assert.deepEqual(hub.ranges(), []);
    await resolve(repo, { maxFileBytes: weights.length });
  });

  it("is listed with the contents of the cache", async () => {
    rig.put(peft());
    await resolve();
    const [listed] = await listCachedModels({ hubCache: rig.cache, cacheDirectory: folder });
    assert.deepEqual(listed?.files, [{ name: "adapter_model.safetensors", sizeBytes: weights.length }]);
  });
});

describe("an adapter on this machine", () => {
  it("is its path, whatever the revision, and the hub is not contacted", async () => {
    writeFileSync(join(folder, "lora.gguf"), "GGUF");
    assert.deepEqual(await resolve(folder, { revision: "v2" }), { path: folder, revision: null });
    assert.equal((await resolve(join(folder, "lora.gguf"))).path, join(folder, "lora.gguf"));
    assert.equal((await resolve(folder, { member: "lora.gguf" })).path, join(folder, "lora.gguf"));
    assert.deepEqual(hub.requests, []);
  });

  it("that is missing is rejected with what was expected", async () => {
    const gone = join(folder, "gone");
    await assertRefused(
      gone,
      `nothing is at "${gone}"; a LoRA adapter is a folder with adapter_config.json, a .gguf file, or owner/name[:FOLDER or FILE] on the hub`,
    );
    await assertRefused(folder, `"${folder}" has no "math" in it`, { member: "math" });
  });
});

describe("an X-LoRA of the hub", () => {
  const files = (seed = 1) => ({
    "xlora_config.json": config,
    "xlora_classifier.safetensors": modelBytes(seed),
    ...peft("one/", modelBytes(seed + 1)),
    ...peft("two/", modelBytes(seed + 2)),
  });
  const find = (options: AdapterFetchOptions = {}, source = repo) =>
    resolveMixture(source, { environment: rig.environment, limits, ...options });

  it("is fetched with its adapters and nothing else, and then available without the hub", async () => {
    rig.put({ ...files(), "optimizer.pt": modelBytes(9) });
    assert.deepEqual(await find(), { path: snapshot, revision: "main" });
    for (const [name, bytes] of Object.entries(files()))
      assert.ok(readFileSync(join(snapshot, name)).equals(bytes), name);
    assert.equal(existsSync(join(snapshot, "optimizer.pt")), false);
    assert.deepEqual(await find(offline), { path: snapshot, revision: "main" });
  });

  it("that was fetched partially is not considered complete", async () => {
    rig.put(files());
    hub.fault = ({ host, path }) => (host === "cdn" && path.includes("two/adapter_model") ? { status: 404 } : null);
    await assert.rejects(find());
    assert.ok(existsSync(join(snapshot, "one", "adapter_model.safetensors")));
    await assert.rejects(find(offline), /the hub may not be asked/);
  });
});
