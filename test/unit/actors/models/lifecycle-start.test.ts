import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import type { ServiceOptions } from "../../../../actors/front/service-options.ts";
import { ModelManager } from "../../../../actors/models/model-manager.ts";
import { ActorSystem } from "../../../../runtime/actor/system.ts";
import { policy } from "./lifecycle-rig.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-models-"));
after(() => rmSync(folder, { recursive: true }));

/** Returns a manager of one model. The settings refer to an adapter whose files do not exist. */
function createManager(): ModelManager {
  const quiet = () => undefined;
  const served = {
    id: "a",
    engine: "wasm",
    spec: { path: join(folder, "none.gguf"), abortFlag: null },
    kind: "thread",
    ownAdapter: null,
    adapters: {
      limits: { maxAdapters: 4, maxRank: 64, maxBytes: 2 ** 30 },
      preloaded: [{ alias: "x", source: "x", revision: null, path: join(folder, "none") }],
    },
  };
  const options = {
    models: [served],
    defaultModelId: "a",
    limits: { maxQueue: 8 },
    adapterFolder: folder,
    adapterRoot: null,
    maxLoadedModels: null,
    idleUnloadMs: 0,
    restart: policy,
    loadTimeoutMs: 60_000,
    log: { debug: quiet, info: quiet, warn: quiet, error: quiet },
    onLoadProgress: quiet,
    agents: { mailboxLimit: 10 },
  } as unknown as ServiceOptions;
  return new ModelManager(options, new ActorSystem("front"), { attach: async () => null, detach: () => {} });
}

describe("starting all models", () => {
  it("fails if an adapter of the settings cannot be prepared", async () => {
    const manager = createManager();
    await assert.rejects(manager.start(), /"x" of model "a"/);
    await manager.stop(1000);
  });

  it("does not fail if the server is stopped meanwhile", async () => {
    const manager = createManager();
    let failure: unknown = null;
    manager.start().catch((error) => {
      failure = error;
    });
    await manager.stop(1000);
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(failure, null);
  });
});
