import assert from "node:assert/strict";
import { afterEach, describe, it } from "node:test";
import type { RequantizeRequest } from "../../../../actors/front/service-options.ts";
import type { ModelWeights } from "../../../../actors/models/served-model.ts";
import { Requantizer } from "../../../../actors/models/weights/requantizer.ts";
import type { ModelSpec } from "../../../../engines/engine.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { come, ModelRig, turns, watch } from "./lifecycle-rig.ts";

let rig = new ModelRig();

afterEach(async () => {
  await rig.close();
});

async function loadedModel() {
  rig = new ModelRig();
  return await rig.loaded("a");
}

function weightsAt(path: string, spec: ModelSpec): ModelWeights {
  return { spec: { ...spec, path }, level: path };
}

describe("other weights of a model", () => {
  it("is loaded when the running requests have ended; new ones wait for it", async () => {
    const tested = await loadedModel();
    const running = come(tested);
    await turns();
    const replaced = watch(
      tested.managed.replaceWeights(weightsAt("new", tested.managed.served.spec)).then(() => true),
    );
    const late = come(tested);
    await turns();
    assert.deepEqual([running.state, late.state, tested.places.length], ["in", "waits", 1]);
    assert.notEqual(tested.managed.served.spec.path, "new");
    running.leave();
    await turns();
    assert.equal(tested.managed.served.spec.path, "new");
    await tested.places[1]?.up();
    await turns();
    assert.deepEqual([late.state, replaced.value], ["in", true]);
  });

  it("is replaced by the former weights if it cannot be loaded, and no request is lost", async () => {
    const tested = await loadedModel();
    const before = tested.managed.served.spec;
    const replaced = tested.managed.replaceWeights(weightsAt("bad", before));
    const refused = assert.rejects(replaced, /cannot be read/);
    const late = come(tested);
    await turns();
    tested.places[1]?.fail(new ServerError("model_file_invalid", "cannot be read"));
    await turns();
    assert.equal(tested.managed.served.spec, before);
    await tested.places[2]?.up();
    await refused;
    assert.deepEqual([late.state, tested.managed.status], ["in", "loaded"]);
  });

  it("is used by the next load of a model that is not loaded", async () => {
    const tested = await loadedModel();
    await tested.managed.unload();
    await tested.managed.replaceWeights(weightsAt("new", tested.managed.served.spec));
    assert.deepEqual([tested.managed.status, tested.places.length], ["unloaded", 1]);
    const request = come(tested);
    await turns();
    await tested.places[1]?.up();
    assert.deepEqual([tested.managed.served.spec.path, request.state], ["new", "in"]);
  });
});

describe("a change of the quantization", () => {
  function setUp() {
    const requests: RequantizeRequest[] = [];
    const ends: { resolve: (spec: ModelSpec) => void; reject: (error: Error) => void }[] = [];
    const logged: string[] = [];
    const log = { info: () => {}, error: (_fields: object, message: string) => void logged.push(message) } as never;
    const requantize = (request: RequantizeRequest) => {
      requests.push(request);
      request.signal.addEventListener("abort", () => ends.at(-1)?.reject(new ServerError("cancelled", "cancelled")));
      return new Promise<ModelSpec>((resolve, reject) => void ends.push({ resolve, reject }));
    };
    const model = {
      id: "a",
      served: { spec: { path: "old" } },
      requantization: null,
      replaced: [] as string[],
      async replaceWeights({ spec }: ModelWeights) {
        this.replaced.push(spec.path);
      },
    };
    return { requests, ends, logged, model, requantizer: new Requantizer({ requantize, log }) };
  }

  it("converts, then replaces the model, and reports its progress", async () => {
    const { requests, ends, model, requantizer } = setUp();
    assert.equal(requantizer.begin(model as never, "q4k"), "a");
    const [request] = requests;
    assert.deepEqual([request?.id, request?.level, request?.spec.path], ["a", "Q4_K", "old"]);
    request?.onProgress(0.5);
    const shown = () => model.requantization as unknown;
    assert.deepEqual(shown(), { level: "Q4_K", status: "converting", progress: 0.5, error: null });
    assert.throws(() => requantizer.begin(model as never, "Q8_0"), { code: "model_state_conflict" });
    ends[0]?.resolve({ path: "new" } as ModelSpec);
    await turns();
    assert.deepEqual([model.replaced, shown()], [["new"], { level: "Q4_K", status: "done", progress: 1, error: null }]);
    requantizer.begin(model as never, "Q4_K");
    ends[1]?.resolve({ path: "old" } as ModelSpec);
    await turns();
    assert.deepEqual(model.replaced, ["new"]);
  });

  it("that fails leaves the model as it is, and says why", async () => {
    const { ends, logged, model, requantizer } = setUp();
    requantizer.begin(model as never, "Q4_K");
    ends[0]?.reject(new ServerError("model_file_invalid", "the file ends early"));
    await turns();
    const { status, error } = model.requantization as unknown as { status: string; error: string };
    assert.deepEqual([model.replaced, status, error, logged.length], [[], "failed", "the file ends early", 1]);
    requantizer.begin(model as never, "Q4_K");
    await requantizer.stop();
    assert.throws(() => requantizer.begin(model as never, "Q4_K"), { code: "draining" });
  });

  it("is refused for a level that does not exist, and by a server that cannot convert", () => {
    const { model, requantizer, requests } = setUp();
    assert.throws(() => requantizer.begin(model as never, "Q9"), { code: "invalid_value", param: "ggml_type" });
    const none = new Requantizer({ log: {} as never });
    assert.throws(() => none.begin(model as never, "Q4_K"), { code: "unsupported" });
    assert.equal(requests.length, 0);
  });
});
