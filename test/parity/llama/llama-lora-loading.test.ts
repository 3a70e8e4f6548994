// Loading and unloading of LoRA adapters in the llama engine: no load, unload or failure changes the results of other
// sequences.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import koffi from "koffi";
import type { AdapterWorkerInit } from "../../../engines/llama/adapters/adapter-worker.ts";
import { openLibrary } from "../../../engines/llama/native/library.ts";
import { TurnLock } from "../../../engines/llama/native/turn-lock.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { afresh, error, loadAdapted, threeAdapters } from "../../fixtures/lora/llama-lora.ts";
import { writeGgufAdapter } from "../../fixtures/lora/lora.ts";
import { tinyModel } from "../../fixtures/models/models.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";

const directory = mkdtempSync(join(tmpdir(), "troupe-llama-lora-"));
after(() => rmSync(directory, { recursive: true, force: true }));

describe("adapters of the llama engine", () => {
  const loadTiny = () => loadAdapted(path, { threads: 1 });
  let path = "";
  let files: string[] = [];
  before(async () => {
    path = await tinyModel();
    files = await threeAdapters(directory, path);
  });

  it("are freed while the last step uses them, and replaced by others", async () => {
    const model = await loadTiny();
    const base = afresh(model, 0);
    const expected: Float32Array[] = [];
    for (let id = 1; id <= 12; id++) {
      await model.adapters.load(id, files[id % 3]!);
      const values = afresh(model, id);
      expected[id % 3] ??= values;
      assert.deepEqual(values, expected[id % 3], `adapter ${id}`);
      model.adapters.unload(id);
      if (id % 2 === 0) assert.deepEqual(afresh(model, 0), base);
      assert.throws(
        () => afresh(model, id),
        (thrown: ServerError) => thrown.code === "model_failed",
      );
    }
    model.dispose();
  });

  it("are loaded and freed while steps run with changing adapters", async () => {
    const model = await loadTiny();
    await model.adapters.load(1, files[1]!);
    const expected = [afresh(model, 0), afresh(model, 1)];
    let isLoading = true;
    let steps = 0;
    const loads = (async () => {
      for (let id = 2; id < 60 || steps < 40; id++) {
        const load = model.adapters.load(id, files[id % 3]!);
        if (id > 2 && id % 2 === 1) model.adapters.unload(id - 1);
        await load;
        if (id % 2 === 1) model.adapters.unload(id);
      }
    })().finally(() => {
      isLoading = false;
    });
    for (; isLoading; steps++) {
      assert.deepEqual(afresh(model, steps % 2), expected[steps % 2]);
      await turn();
    }
    await loads;
    model.dispose();
  });

  it("stay unchanged when one cannot be loaded, and the error says why", async () => {
    const model = await loadTiny();
    await model.adapters.load(1, files[1]!);
    const expected = [afresh(model, 0), afresh(model, 1)];
    const truncated = join(directory, "truncated.gguf");
    writeFileSync(truncated, readFileSync(files[2]!).subarray(0, -1000));
    const foreign = join(directory, "foreign.gguf");
    const narrow = join(directory, "narrow.gguf");
    await writeTinyModel(narrow, { seed: 1, width: 32 });
    await writeGgufAdapter(foreign, { modelPath: narrow, seed: 1 });
    const refusals: [string, RegExp][] = [
      [join(directory, "missing.gguf"), /missing\.gguf': No such file/],
      [directory, /failed/],
      [path, /expect general\.type to be 'adapter'/],
      [truncated, /corrupted or incomplete/],
      [foreign, /incorrect shape/],
    ];
    for (const [i, [file, message]] of refusals.entries()) {
      await assert.rejects(model.adapters.load(2 + i, file), (thrown: ServerError) => {
        assert.equal(thrown.code, "lora_device_load_failed");
        assert.match(thrown.message, message);
        return true;
      });
      assert.throws(
        () => afresh(model, 2 + i),
        (thrown: ServerError) => thrown.code === "model_failed",
      );
      assert.deepEqual([afresh(model, 0), afresh(model, 1)], expected);
    }
    await model.adapters.load(2, files[2]!);
    assert.ok(error(afresh(model, 2), expected[0]!) > 0.05);
    model.dispose();
  });

  it("take no more memory when loaded for the hundredth time than for the first", async () => {
    const model = await loadTiny();
    const once = async (id: number) => {
      await model.adapters.load(id, files[id % 3]!);
      afresh(model, id);
      model.adapters.unload(id);
    };
    for (let id = 1; id <= 60; id++) await once(id);
    const before = process.memoryUsage.rss();
    for (let id = 61; id <= 160; id++) await once(id);
    const grown = process.memoryUsage.rss() - before;
    const bytes = readFileSync(files[0]!).length;
    assert.ok(grown < (100 * bytes) / 4, `${grown} bytes more after 100 loads of ${bytes}`);
    model.dispose();
  });

  it("go with their model, which may end while one is being loaded", async () => {
    for (let round = 0; round < 5; round++) {
      const model = await loadTiny();
      await model.adapters.load(1, files[1]!);
      afresh(model, 1);
      const settled = Promise.allSettled([2, 3, 4].map((id) => model.adapters.load(id, files[id % 3]!)));
      for (let i = 0; i < round; i++) await turn();
      model.dispose();
      for (const result of await settled) {
        assert.ok(result.status === "fulfilled" || result.reason.code === "lora_device_load_failed");
      }
    }
  });

  it("are freed without a further operation when one is freed while another is being loaded", async () => {
    const { functions } = await openLibrary(false);
    const free = functions.adapterFree;
    let freed = 0;
    const counting = functions as { adapterFree: typeof free };
    counting.adapterFree = (adapter) => {
      freed++;
      free(adapter);
    };
    try {
      const model = await loadTiny();
      for (let id = 1; id < 20; id += 2) {
        await model.adapters.load(id, files[0]!);
        const loading = model.adapters.load(id + 1, files[1]!);
        for (let i = 0; i < id; i++) await turn();
        model.adapters.unload(id);
        await loading;
        assert.equal(freed, id);
        model.adapters.unload(id + 1);
      }
      model.dispose();
    } finally {
      counting.adapterFree = free;
    }
  });

  it("are handed over once their thread has let go of the lock", async (t) => {
    const library = await openLibrary(false);
    const params = library.functions.modelDefaultParams();
    params.n_gpu_layers = 0;
    const model = library.functions.modelLoadFromFile(path, params);
    const { memory } = new TurnLock(0);
    const { release, path: file } = library;
    const init: AdapterWorkerInit = { release, library: file, model: koffi.address(model), lock: memory };
    // Source of a worker that wraps the adapter worker. It replaces each message of the adapter worker by the state of
    // the lock at that time: 1 if the adapter worker holds the lock or waits for it, otherwise 0.
    const source = `
      const { parentPort, workerData } = require("node:worker_threads");
      const post = parentPort.postMessage.bind(parentPort);
      parentPort.postMessage = () => post(Atomics.load(new Int32Array(workerData.lock), 1));
      import("${new URL("../../../engines/llama/adapters/adapter-worker.js", import.meta.url).href}");`;
    const worker = new Worker(source, { eval: true, workerData: init });
    t.after(() => worker.terminate());
    for (const name of [files[0]!, join(directory, "missing.gguf")]) {
      worker.postMessage(name);
      assert.deepEqual(await once(worker, "message"), [0]);
    }
    await worker.terminate();
    library.functions.modelFree(model);
  });

  it("are freed with their model, and nothing is left to free then", async () => {
    const model = await loadTiny();
    await model.adapters.load(1, files[1]!);
    afresh(model, 1);
    model.dispose();
    model.adapters.unload(1);
    await assert.rejects(model.adapters.load(2, files[2]!), { code: "lora_device_load_failed" });
  });
});
