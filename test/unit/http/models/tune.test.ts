import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { TuneRequest, Tuner } from "../../../../actors/api/tuning.ts";
import { createApp } from "../../../../http/app.ts";
import { tuneResultSchema } from "../../../../http/models/tune-operation.ts";
import { type ErrorCode, ServerError } from "../../../../runtime/errors.ts";
import { tuneResult } from "../../../fixtures/api/tune-result.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

function setUp(tune: Tuner["tune"] = async () => tuneResult) {
  const asked: TuneRequest[] = [];
  const tuner: Tuner = {
    tune: (wanted, signal) => {
      asked.push(wanted);
      return tune(wanted, signal);
    },
  };
  const app = createApp({ inference: new FakeInference(), tuner, log: recordingLog() });
  const post = async (body: unknown, headers?: Record<string, string>) => {
    const reply = await request(app, "POST", "/v1/models/tune", { body, ...(headers && { headers }) });
    return { status: reply.status, body: JSON.parse(reply.body) };
  };
  return { asked, post };
}

describe("POST /v1/models/tune", () => {
  it("responds with the result in the form of the contract", async () => {
    const { asked, post } = setUp();
    const { status, body } = await post({ model_id: "tiny" });
    assert.equal(status, 200);
    assert.deepEqual(tuneResultSchema.parse(body), body);
    assert.deepEqual(
      [body.recommended_isq, body.device_layers, body.device_layers_cli, body.paged_attn_mode, body.total_vram_bytes],
      ["Q4K", null, null, "auto", 16_000],
    );
    const [candidate] = body.candidates;
    assert.deepEqual(
      [candidate.estimated_size_bytes, candidate.vram_usage_percent, candidate.fit_status, candidate.recommended],
      [1000, 12.5, "fits", true],
    );
    const free = { level: null, cpu: null, dtype: null, revision: null, tokenSource: null };
    assert.deepEqual(asked, [{ model: "tiny", profile: "balanced", ...free }]);
  });

  it("accepts all fields of the contract, and passes null for omitted ones", async () => {
    const { asked, post } = setUp();
    const given = { requested_isq: "q4k", cpu: true, dtype: "f16", hf_revision: "main", token_source: "none" };
    const images = { max_image_length: 512, max_num_images: 2 };
    const { body } = await post({ model_id: "tiny", profile: "fast", ...given, ...images });
    const taken = { level: "Q4_K", cpu: true, dtype: "f16", revision: "main", tokenSource: "none" };
    assert.deepEqual(asked, [{ model: "tiny", profile: "fast", ...taken }]);
    assert.deepEqual(body.notes.slice(1), [
      "max_image_length has no effect: the weights alone decide",
      "max_num_images has no effect: the weights alone decide",
    ]);
    const nothing = Object.fromEntries([...Object.keys(given), ...Object.keys(images)].map((name) => [name, null]));
    assert.equal((await post({ model_id: "tiny", ...nothing })).status, 200);
  });

  it("refuses a body that is invalid, naming the field", async () => {
    const { asked, post } = setUp();
    for (const [body, param] of [
      [{}, "model_id"],
      [{ model_id: "" }, "model_id"],
      [{ model_id: 7 }, "model_id"],
      [{ model_id: "tiny", profile: "slow" }, "profile"],
      [{ model_id: "tiny", requested_isq: "Q99" }, "requested_isq"],
      [{ model_id: "tiny", requested_isq: "auto" }, "requested_isq"],
      [{ model_id: "tiny", cpu: "yes" }, "cpu"],
      [{ model_id: "tiny", dtype: "f8" }, "dtype"],
      [{ model_id: "tiny", max_num_images: -1 }, "max_num_images"],
      [{ model_id: "tiny", profil: "fast" }, "profil"],
    ] as const) {
      const reply = await post(body);
      assert.deepEqual([reply.status, reply.body.error.param], [400, param], JSON.stringify(reply.body));
    }
    assert.deepEqual(asked, []);
  });

  it("refuses a body that is too large, of another type, or no JSON", async () => {
    const { asked, post } = setUp();
    const large = await post({ model_id: "x".repeat(70_000) });
    assert.deepEqual([large.status, large.body.error.code], [413, "body_too_large"]);
    const typed = await post('{"model_id":"tiny"}', { "content-type": "text/plain" });
    assert.deepEqual([typed.status, typed.body.error.code], [415, "invalid_content_type"]);
    const broken = await post("{", { "content-type": "application/json" });
    assert.deepEqual([broken.status, broken.body.error.code], [400, "invalid_json"]);
    assert.deepEqual(asked, []);
  });

  it("reports why a tuning failed", async () => {
    for (const [code, status, shown] of [
      ["conflict", 409, "conflict"],
      ["model_not_found", 404, "model_not_found"],
      ["config_invalid", 500, "tuning_failed"],
      ["model_file_invalid", 500, "tuning_failed"],
      ["peer_gone", 500, "tuning_failed"],
    ] as readonly [ErrorCode, number, string][]) {
      const { post } = setUp(async () => {
        throw new ServerError(code, "the reason");
      });
      const reply = await post({ model_id: "tiny" });
      assert.deepEqual([reply.status, reply.body.error.message, reply.body.error.code], [status, "the reason", shown]);
    }
  });

  it("is refused by an app without a tuner", async () => {
    const app = createApp({ inference: new FakeInference(), log: recordingLog() });
    const reply = await request(app, "POST", "/v1/models/tune", { body: { model_id: "tiny" } });
    assert.deepEqual([reply.status, JSON.parse(reply.body).error.code], [400, "unsupported"]);
  });
});
