// LoRA registry of a model: PEFT folders are prepared on a real worker thread. Only the model thread is a fake.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { prepareOnPlace } from "../../actors/lora-registry/prepare-on-place.ts";
import { writePeftAdapter } from "../fixtures/lora/lora.ts";
import { tinyModel } from "../fixtures/models/models.ts";
import { createAdapters, eventually, withCode } from "../unit/actors/lora-registry/lora-registry-rig.ts";

function temporaryFolder(context: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "troupe-lora-"));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

describe("adapters prepared on a worker thread", () => {
  it("are identified by content, kept while in use, and removed afterwards", async (context) => {
    const modelPath = await tinyModel();
    const folder = temporaryFolder(context);
    const source = join(folder, "style");
    await writePeftAdapter(source, { modelPath, seed: 1, rank: 4 });
    const rig = await createAdapters(context, { modelPath, root: folder, limits: { maxBytes: 100_000_000 } });

    const first = await rig.load("style", source);
    assert.equal(first.rank, 4);
    assert.ok(first.bytes > 0);
    const path = rig.model.paths.get(1) as string;
    assert.equal(createHash("sha256").update(readFileSync(path)).digest("hex"), first.generation);
    const lease = rig.adapters.lease({ alias: "style" });

    await writePeftAdapter(source, { modelPath, seed: 2, rank: 8 });
    const second = await rig.load("style", source, { replace: true, expectedGeneration: first.generation });
    assert.notEqual(second.generation, first.generation);
    await rig.restart();
    assert.deepEqual(rig.held(), [first.generation, second.generation].sort(), "independent of the source folder");
    await writePeftAdapter(source, { modelPath, seed: 1, rank: 4 });
    assert.equal((await rig.load("again", source)).generation, first.generation);
    await rig.filesAre(2);

    lease.release();
    await rig.unload("again");
    await rig.unload("style");
    await eventually(() => assert.deepEqual(rig.held(), []));
    await rig.filesAre(0);
  });

  it("are refused with specific codes, and leave no files", async (context) => {
    const modelPath = await tinyModel();
    const [folder, outside] = [temporaryFolder(context), temporaryFolder(context)];
    for (const place of [folder, outside]) await writePeftAdapter(join(place, "a"), { modelPath, seed: 1, rank: 16 });
    symlinkSync(join(outside, "a"), join(folder, "link"));
    const rig = await createAdapters(context, { modelPath, root: folder, limits: { maxRank: 8 } });
    await assert.rejects(rig.load("a", join(folder, "none")), withCode("adapter_path_not_found"));
    await assert.rejects(rig.load("a", join(outside, "a")), withCode("adapter_path_forbidden"));
    await assert.rejects(rig.load("a", join(folder, "link")), withCode("adapter_path_forbidden"));
    await assert.rejects(rig.load("a", join(folder, "a")), withCode("lora_rank_limit_exceeded"));
    await rig.filesAre(0);
    assert.deepEqual(rig.adapters.list().generations, []);
  });

  it("are cancelled when the server stops", async (context) => {
    const modelPath = await tinyModel();
    const folder = temporaryFolder(context);
    await writePeftAdapter(join(folder, "a"), { modelPath, seed: 1 });
    const rig = await createAdapters(context, { modelPath });
    const refused = assert.rejects(rig.load("a", join(folder, "a")), withCode("draining"));
    await rig.adapters.close();
    await refused;
    await rig.filesAre(0);
  });

  it("are refused if their folder cannot be created", async () => {
    const limits = { maxRank: 8, maxBytes: 1000 };
    const options = { source: "/a", root: null, modelPath: await tinyModel(), limits, folder: "/dev/null/adapters" };
    const preparing = prepareOnPlace(options, new AbortController().signal);
    await assert.rejects(preparing, withCode("lora_storage_unavailable"));
  });
});
