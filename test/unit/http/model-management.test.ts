import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ModelStatus } from "../../../actors/api/inference.ts";
import { createApp } from "../../../http/app.ts";
import { managedModelSchema, managementErrors } from "../../../http/models/management-operation.ts";
import { type ErrorCode, ServerError } from "../../../runtime/errors.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { FakeModels } from "../../fixtures/fakes/fake-models.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";

function setUp() {
  const inference = new FakeInference();
  const models = new FakeModels(inference);
  const log = recordingLog();
  const app = createApp({ inference, models, log });
  const post = async (what: "status" | "reload" | "unload", body: unknown) => {
    const reply = await request(app, "POST", `/v1/models/${what}`, { body });
    return { status: reply.status, headers: reply.headers, body: JSON.parse(reply.body) };
  };
  return { app, inference, models, log, post };
}

describe("a model with the name of a route", () => {
  it("is shown like any other", async () => {
    const { app, inference } = setUp();
    const [tiny] = inference.entries;
    inference.entries = [{ ...tiny!, id: "status" }];
    const shown = await request(app, "GET", "/v1/models/status");
    assert.deepEqual([shown.status, JSON.parse(shown.body).id], [200, "status"]);
    assert.equal((await request(app, "GET", "/v1/models/reload")).status, 404);
    const refused = await request(app, "PUT", "/v1/models/status");
    assert.deepEqual([refused.status, refused.headers.allow], [405, "GET, HEAD, POST, OPTIONS"]);
  });
});

describe("model management routes", () => {
  it("report whether a model is loaded, by its id or as the default model", async () => {
    const { post } = setUp();
    for (const [name, model_id, status] of [
      ["tiny", "tiny", "loaded"],
      ["default", "tiny", "loaded"],
      ["other", "other", "unloaded"],
    ]) {
      const reply = await post("status", { model_id: name });
      assert.deepEqual([reply.status, reply.body], [200, { model_id, status }]);
      managedModelSchema.parse(reply.body);
    }
  });

  it("load and unload models", async () => {
    const { models, post } = setUp();
    const reloaded = await post("reload", { model_id: "other" });
    assert.deepEqual([reloaded.status, reloaded.body], [200, { model_id: "other", status: "loaded" }]);
    const unloaded = await post("unload", { model_id: "default" });
    assert.deepEqual([unloaded.status, unloaded.body], [200, { model_id: "tiny", status: "unloaded" }]);
    assert.deepEqual(models.asked, ["reload other", "unload tiny"]);
  });

  it("report that another request is loading it", async () => {
    const { models, post } = setUp();
    models.becomes = { status: "reloading", error: null };
    const { status, body } = await post("reload", { model_id: "tiny" });
    assert.deepEqual([status, body], [200, { model_id: "tiny", status: "reloading" }]);
  });

  it("report an unknown model, and the id of a model with an adapter as unknown", async () => {
    const { inference, log, post } = setUp();
    const [tiny, other] = inference.entries;
    inference.entries = [{ ...tiny!, adapters: [{ alias: "a", generation: "0", createdAt: 1 }] }, other!];
    for (const what of ["status", "reload", "unload"] as const) {
      for (const name of ["nobody", "tiny::a", "a", ""]) {
        const { status, body } = await post(what, { model_id: name });
        assert.deepEqual([status, body.model_id, body.status], [404, name, "not_found"]);
        assert.ok(body.error.length > 0);
        managedModelSchema.parse(body);
      }
    }
    assert.ok(log.lines.every(({ fields }) => fields.code === "model_not_found" && fields.status === 404));
  });

  const failures: readonly (readonly [ErrorCode, ModelStatus, number, string])[] = [
    ["model_failed", "unloaded", 503, "internal_error"],
    ["model_file_invalid", "unloaded", 500, "internal_error"],
    ["model_source_unreachable", "unloaded", 503, "internal_error"],
    ["model_state_conflict", "reloading", 409, "reloading"],
  ];
  for (const [code, now, status, shown] of failures) {
    it(`answer ${code} with ${status}, in their own shape`, async () => {
      const { models, post } = setUp();
      models.becomes = { status: now, error: { code, message: "because" } };
      for (const what of ["reload", "unload"] as const) {
        const reply = await post(what, { model_id: "tiny" });
        assert.deepEqual([reply.status, reply.body], [status, { model_id: "tiny", status: shown, error: "because" }]);
        assert.equal(reply.headers["retry-after"] !== undefined, status === 503);
      }
      const asked = await post("status", { model_id: "tiny" });
      assert.deepEqual([asked.status, asked.body], [200, { model_id: "tiny", status: now, error: "because" }]);
    });
  }

  it("return thrown errors and invalid requests in the common envelope", async () => {
    const { models, post } = setUp();
    const bodies: readonly unknown[] = [
      {},
      { model_id: 5 },
      { model_id: "tiny", model: "x" },
      { model_id: "x".repeat(5000) },
      [],
    ];
    for (const body of bodies) {
      const reply = await post("reload", body);
      assert.deepEqual([reply.status, reply.body.error.code], [400, "invalid_value"]);
      managementErrors.schema.parse(reply.body);
    }
    models.reload = async () => {
      throw new ServerError("draining", "because");
    };
    const reply = await post("reload", { model_id: "tiny" });
    assert.deepEqual([reply.status, reply.body.error.code], [503, "draining"]);
  });

  it("refuse changes without model management", async () => {
    const app = createApp({ inference: new FakeInference(), log: recordingLog() });
    const post = async (path: string, body: unknown) => {
      const reply = await request(app, "POST", path, { body });
      return [reply.status, JSON.parse(reply.body)];
    };
    assert.deepEqual(await post("/v1/models/status", { model_id: "other" }), [
      200,
      { model_id: "other", status: "unloaded" },
    ]);
    const [status, body] = await post("/v1/models/unload", { model_id: "tiny" });
    assert.deepEqual([status, body.error.code], [400, "unsupported"]);
    assert.equal((await post("/v1/models/reload", { model_id: "nobody" }))[0], 404);
  });
});
