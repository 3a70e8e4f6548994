import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { preloadedAdapter } from "../../../../../cli/assembly/adapters/model-adapters.ts";
import type { ModelConfig } from "../../../../../cli/config/config.ts";
import { createLogger } from "../../../../../runtime/log/log.ts";
import { type FakeHub, startFakeHub } from "../../../../fixtures/fakes/fake-hub.ts";
import { resolve } from "../../config/resolve.ts";

const folder = mkdtempSync(join(tmpdir(), "adapter-download-"));
let hub: FakeHub;
before(async () => {
  hub = await startFakeHub();
  process.env.HF_ENDPOINT = hub.url;
});
after(async () => {
  await hub.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe("the download of an adapter", () => {
  it("ends with the start that is stopped", async () => {
    const stop = new AbortController();
    hub.fault = () => {
      stop.abort();
      return { stallAfter: 0 };
    };
    const config = resolve({ flags: { "--hf-cache": folder, "--lora": ["a=owner/name"] } });
    const model = config.models[0] as ModelConfig;
    const progress = { update: () => {}, stop: () => {}, signal: stop.signal };
    const log = createLogger({ level: "silent", format: "json" });
    const entry = model.adapter.lora[0] as ModelConfig["adapter"]["lora"][number];
    await assert.rejects(preloadedAdapter({ config, folder, log, progress }, model, entry), { code: "cancelled" });
  });
});
