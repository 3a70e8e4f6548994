import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ModelEntry } from "../../../../actors/api/inference.ts";
import { leaseFor } from "../../../../actors/front/request-adapter.ts";
import { resolveName } from "../../../../actors/models/model-names.ts";
import type { ServedModel } from "../../../../actors/models/served-model.ts";

const adapters = (...aliases: string[]) =>
  aliases.map((alias) => ({ alias, generation: "0".repeat(64), createdAt: 1 }));

const models: Pick<ModelEntry, "id" | "adapters">[] = [
  { id: "org/base", adapters: adapters("poet", "shared", "100%:#") },
  { id: "other", adapters: adapters("shared", "other") },
];

const resolve = (name: string | undefined) => resolveName(name, models, "org/base");

describe("the name of a model", () => {
  it("is an id, or names the default model", () => {
    for (const name of [undefined, "default", "org/base"]) {
      assert.deepEqual(resolve(name), { id: "org/base", adapter: null });
    }
    assert.deepEqual(resolve("other"), { id: "other", adapter: null });
  });

  it("names a model with one of its adapters, by card id or by an alias that only one model has", () => {
    assert.deepEqual(resolve("org/base::shared"), { id: "org/base", adapter: { alias: "shared" } });
    assert.deepEqual(resolve("other::shared"), { id: "other", adapter: { alias: "shared" } });
    assert.deepEqual(resolve("org/base::100%25%3A%23"), { id: "org/base", adapter: { alias: "100%:#" } });
    assert.deepEqual(resolve("poet"), { id: "org/base", adapter: { alias: "poet" } });
    assert.throws(() => resolve("shared"), { code: "model_not_found" });
  });

  it("is refused with the known names if unknown, in a message of bounded length", () => {
    assert.throws(() => resolve("nobody"), {
      code: "model_not_found",
      param: "model",
      message: /'nobody' is not available\. Available models: default, org\/base, other, org\/base::poet, /,
    });
    const aliases = adapters(...Array.from({ length: 1000 }, (_, i) => `a${i}`));
    assert.throws(() => resolveName("nobody", [{ id: "m", adapters: aliases }], "m"), {
      message: /: default, m, m::a0, .*, m::a29 and 970 more$/,
    });
    const many = Array.from({ length: 1000 }, (_, i) => ({ id: `model ${i}`, adapters: [] }));
    assert.throws(
      () => resolveName("x".repeat(100_000), many, "model 0"),
      ({ message }: Error) => message.length < 1000 && message.endsWith("model 30 and 969 more"),
    );
  });
});

describe("the adapter of a request", () => {
  const served = (changes: object) => ({ id: "base", ownAdapter: null, spec: {}, ...changes }) as ServedModel;
  const own = { generation: "0".repeat(64), path: "/own.gguf", rank: 1, bytes: 1 };

  it("is none, or the fixed one of its model", () => {
    assert.equal(leaseFor(served({}), null, null), null);
    assert.deepEqual(leaseFor(served({ ownAdapter: own }), null, null)?.adapter, { id: 1, generation: null });
  });

  it("cannot be chosen if the model takes no adapters", () => {
    const chosen = (model: ServedModel) => () => leaseFor(model, null, { alias: "poet" });
    assert.throws(chosen(served({})), { code: "invalid_value", param: "adapter", message: /enable_lora/ });
    for (const model of [served({ ownAdapter: own }), served({ spec: { mixture: {} } })]) {
      const message = 'model "base" has adapters of its own, and takes no others; leave out adapter';
      assert.throws(chosen(model), { code: "invalid_value", param: "adapter", message });
    }
  });
});
