import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { adapterRoot } from "../../../../cli/assembly/adapters/model-adapters.ts";
import { frontOptions } from "../../../../cli/assembly/service-options.ts";
import type { Flags } from "../../../../cli/config/given.ts";
import type { Progress } from "../../../../cli/progress.ts";
import { createLogger } from "../../../../runtime/log/log.ts";
import { writePeftAdapter } from "../../../fixtures/lora/lora.ts";
import { writeXlora } from "../../../fixtures/lora/xlora.ts";
import { tinyModel } from "../../../fixtures/models/models.ts";
import { resolve } from "../config/resolve.ts";

const progress: Progress = { update: () => {}, stop: () => {} };
const log = createLogger({ level: "silent", format: "json" });
const folder = realpathSync(mkdtempSync(join(tmpdir(), "model-adapters-")));
const loras = join(folder, "loras");
let modelPath = "";
before(async () => {
  modelPath = await tinyModel();
  for (const [index, name] of ["one", "two"].entries()) {
    await writePeftAdapter(join(loras, name), { modelPath, seed: index, rank: 4 });
  }
});
after(() => rmSync(folder, { recursive: true, force: true }));

async function optionsOf(flags: Flags) {
  const config = resolve({ flags: { "--model-id": [modelPath], "--engine": "wasm", ...flags } });
  const options = await frontOptions(config, log, progress);
  const [model] = options.models;
  assert.ok(model);
  return { options, model };
}

describe("the adapter settings that a model gets", () => {
  it("are empty if it accepts none", async () => {
    const { options, model } = await optionsOf({});
    assert.deepEqual([model.adapters, model.ownAdapter, model.spec.adapters, model.spec.mixture], Array(4).fill(null));
    assert.deepEqual([options.adapterFolder, options.adapterRoot], ["", null]);
    assert.deepEqual([options.maxLoadedModels, options.idleUnloadMs], [null, 0]);
  });

  it("contain the maximum number if it accepts adapters later", async () => {
    const { options, model } = await optionsOf({ "--enable-lora": true, "--lora-max-adapters": "3" });
    const limits = { maxAdapters: 3, maxRank: 256, maxBytes: 8 * 2 ** 30 };
    assert.deepEqual(model.adapters, { limits, preloaded: [] });
    assert.deepEqual(model.spec.adapters, limits);
    assert.ok(existsSync(options.adapterFolder));
  });

  it("contain the paths of the initial adapters", async () => {
    const { model } = await optionsOf({ "--lora": [`a=${join(loras, "one")}`, `b=${join(loras, "two")}`] });
    assert.deepEqual(model.adapters?.preloaded, [
      { alias: "a", source: join(loras, "one"), path: join(loras, "one"), revision: null },
      { alias: "b", source: join(loras, "two"), path: join(loras, "two"), revision: null },
    ]);
  });

  it("are rejected with the adapter and the model if an adapter is missing", async () => {
    await assert.rejects(optionsOf({ "--lora": [`a=${join(loras, "one")}`, `b=${join(loras, "gone")}`] }), {
      name: "ServerError",
      message: new RegExp(`^lora "b" of model "${modelPath}": nothing is at "${join(loras, "gone")}"`),
    });
  });
});

describe("the adapter of legacy_lora", () => {
  it("has the effect of all its adapters, and belongs to the model", async () => {
    const order = join(folder, "order.json");
    writeFileSync(order, JSON.stringify({ order: ["two", "one"] }));
    const { options, model } = await optionsOf({ "--legacy-lora": loras, "--legacy-lora-order": order });
    const own = model.ownAdapter;
    assert.ok(own);
    assert.equal(own.rank, 8);
    assert.equal(own.path, join(options.adapterFolder, `${own.generation}.gguf`));
    assert.ok(existsSync(own.path));
    assert.equal(model.adapters, null);
    assert.deepEqual(model.spec.adapters, { maxAdapters: 1, maxRank: 8, maxBytes: own.bytes });
  });

  it("is refused with what is wrong with it, by the model's name", async () => {
    await assert.rejects(optionsOf({ "--legacy-lora": loras }), {
      name: "ServerError",
      message: new RegExp(`^legacy_lora of model "${modelPath}": .*adapter_config\\.json`),
    });
  });
});

describe("the X-LoRA of a model", () => {
  it("is prepared for the engine, and the model accepts no other adapters", async () => {
    const xlora = await writeXlora(join(folder, "xlora"), { modelPath, seed: 1, layerwise: true });
    const flags = { "--xlora": xlora.folder, "--xlora-order": xlora.orderFile, "--tgt-non-granular-index": "5" };
    const { options, model } = await optionsOf({ ...flags, "--engine": "auto" });
    assert.equal(model.engine, "wasm");
    const { mixture } = model.spec;
    assert.ok(mixture);
    assert.deepEqual([mixture.adapters.length, Object.keys(mixture.layers).length, mixture.keptAfter], [3, 14, 5]);
    assert.ok(mixture.adapters.every((path) => existsSync(path) && path.startsWith(options.adapterFolder)));
    assert.deepEqual([model.adapters, model.ownAdapter, model.spec.adapters], [null, null, null]);
  });

  it("is refused with what is wrong with it, by the model's name", async () => {
    await assert.rejects(optionsOf({ "--xlora": loras }), {
      name: "ServerError",
      message: new RegExp(`^xlora of model "${modelPath}": .*no xlora_config\\.json`),
    });
    await assert.rejects(optionsOf({ "--xlora": join(folder, "gone") }), {
      name: "ServerError",
      message: /: nothing is at ".*gone"; an X-LoRA is a folder with xlora_config\.json/,
    });
  });

  it("is rejected with the llama engine", async () => {
    await assert.rejects(optionsOf({ "--xlora": loras, "--engine": "llama" }), {
      code: "config_invalid",
      message: /^engine expects wasm, the only one with xlora; got llama/,
    });
  });
});

describe("SERVICE_LORA_ADAPTER_ROOT", () => {
  const rootOf = (given: string | undefined) =>
    adapterRoot(resolve({ environment: { SERVICE_LORA_ADAPTER_ROOT: given } }));

  it("is the real path of a folder, or none", () => {
    const link = join(folder, "link");
    mkdirSync(join(folder, "real"));
    symlinkSync(join(folder, "real"), link);
    assert.equal(rootOf(link), join(folder, "real"));
    assert.equal(rootOf(undefined), null);
  });

  it("is rejected if there is no such folder", () => {
    const gone = join(folder, "gone");
    const file = join(folder, "file");
    writeFileSync(file, "");
    assert.throws(() => rootOf(gone), {
      code: "config_invalid",
      message: `SERVICE_LORA_ADAPTER_ROOT expects a folder; got "${gone}", which cannot be opened (ENOENT): create it, or unset the variable`,
    });
    assert.throws(() => rootOf(file), {
      code: "config_invalid",
      message: /, which is not a folder: create it, or unset the variable$/,
    });
  });
});

describe("models without requests", () => {
  it("are unloaded as configured", async () => {
    const { options } = await optionsOf({ "--max-loaded-models": "2", "--idle-unload-secs": "90" });
    assert.deepEqual([options.maxLoadedModels, options.idleUnloadMs], [2, 90_000]);
  });
});
