import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { modelCaches } from "../../../../cli/commands/model-caches.ts";
import { listCachedModels } from "../../../../engines/files/hub/cached-models.ts";

const home = mkdtempSync(join(tmpdir(), "cache-"));
after(() => rmSync(home, { recursive: true, force: true }));

describe("the models that `troupe cache` and `troupe models` list", () => {
  it("are in the cache that TROUPE_HF_CACHE names, as those of serve", async () => {
    const hub = join(home, "hub");
    const snapshot = join(hub, "models--owner--name", "snapshots", "abc");
    mkdirSync(snapshot, { recursive: true });
    writeFileSync(join(snapshot, "model.gguf"), "GGUF");
    const ids = async (environment: NodeJS.ProcessEnv) =>
      (await listCachedModels(modelCaches({ XDG_CACHE_HOME: home, ...environment }))).map(({ id }) => id);
    assert.deepEqual(await ids({ TROUPE_HF_CACHE: hub }), ["owner/name"]);
    assert.deepEqual(await ids({ HF_HUB_CACHE: hub, TROUPE_HF_CACHE: "" }), ["owner/name"]);
    assert.deepEqual(await ids({ HF_HUB_CACHE: hub, TROUPE_HF_CACHE: join(home, "other") }), []);
  });
});
