import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { commonErrors, saysWhenToRetry } from "../../../../http/errors.ts";
import { describedRoutes } from "../../../../http/routes.ts";
import { type ErrorCode, errorCodes, errorMeaning, ServerError } from "../../../../runtime/errors.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

/** Expected HTTP status of each error code. */
const statuses: Readonly<Record<ErrorCode, number>> = {
  invalid_json: 400,
  invalid_content_type: 415,
  invalid_request: 400,
  headers_too_large: 431,
  request_timeout: 408,
  body_too_large: 413,
  invalid_value: 400,
  unsupported: 400,
  context_length_exceeded: 400,
  invalid_api_key: 401,
  forbidden: 403,
  model_not_found: 404,
  not_found: 404,
  file_not_found: 404,
  file_elided: 410,
  file_not_produced: 422,
  session_not_found: 404,
  skill_not_found: 404,
  previous_response_not_found: 404,
  websocket_connection_limit_reached: 400,
  method_not_allowed: 405,
  conflict: 409,
  queue_full: 429,
  mailbox_full: 429,
  queue_timeout: 503,
  model_loading: 503,
  draining: 503,
  timeout: 503,
  storage_unavailable: 503,
  cancelled: 503,
  metrics_disabled: 503,
  model_source_unreachable: 503,
  model_failed: 503,
  peer_gone: 503,
  reader_stalled: 503,
  config_invalid: 500,
  model_file_invalid: 500,
  tuning_failed: 500,
  invalid_lora_name: 400,
  invalid_lora_load_policy: 400,
  invalid_adapter_path: 400,
  invalid_adapter_file: 400,
  adapter_path_forbidden: 403,
  adapter_file_forbidden: 403,
  lora_adapter_not_found: 404,
  adapter_path_not_found: 404,
  adapter_file_not_found: 404,
  lora_runtime_unavailable: 409,
  lora_adapter_already_loaded: 409,
  lora_generation_mismatch: 409,
  lora_rank_limit_exceeded: 409,
  lora_adapter_limit_exceeded: 409,
  lora_slot_space_exhausted: 409,
  lora_byte_limit_exceeded: 409,
  lora_alias_limit_exceeded: 409,
  adapter_file_changed: 409,
  model_state_conflict: 409,
  lora_adapter_file_too_large: 413,
  invalid_lora_adapter: 422,
  lora_load_busy: 429,
  invalid_lora_runtime: 500,
  lora_load_task_failed: 500,
  adapter_storage_unavailable: 503,
  lora_storage_unavailable: 503,
  lora_device_load_failed: 503,
  internal: 500,
};

/** Errors for which a retry is useless, because they last until a setting is changed. */
const staysSo: readonly ErrorCode[] = ["metrics_disabled"];

/** Sends a request to a model that fails with this error. Returns the response. */
async function answerTo(error: ServerError) {
  const inference = new FakeInference();
  inference.resolveModel = () => {
    throw error;
  };
  const app = createApp({ inference, log: recordingLog() });
  return request(app, "POST", "/v1/completions", { body: { prompt: "hi" } });
}

describe("the table of error codes", () => {
  it("has a status and a meaning for every code", () => {
    assert.deepEqual([...errorCodes].sort(), Object.keys(statuses).sort());
    for (const code of errorCodes) assert.match(errorMeaning(code), /^[A-Z].*\.$/, code);
  });

  for (const [code, status] of Object.entries(statuses) as [ErrorCode, number][]) {
    it(`answers ${code} with ${status} and the envelope`, async () => {
      const reply = await answerTo(new ServerError(code, "because", { param: "model" }));
      assert.deepEqual([reply.status, reply.headers["content-type"]], [status, "application/json"]);
      const body = JSON.parse(reply.body);
      const type = status === 429 ? "rate_limit_error" : status < 500 ? "invalid_request_error" : "server_error";
      assert.deepEqual(body, { error: { message: "because", type, param: "model", code } });
      assert.ok(commonErrors.schema.safeParse(body).success);
      const isWorthAnotherTry = [408, 429, 503].includes(status) && !staysSo.includes(code);
      assert.equal(reply.headers["retry-after"] !== undefined, isWorthAnotherTry);
      if (isWorthAnotherTry) assert.ok(Number(reply.headers["retry-after"]) > 0);
    });
  }

  it("has retry-after for every retryable code", async () => {
    for (const code of errorCodes) {
      const { retryable } = new ServerError(code, "because");
      if (retryable) assert.ok(saysWhenToRetry(code), code);
    }
  });

  for (const { path, errors } of describedRoutes.filter((route) => route.errors !== undefined)) {
    it(`has a status of the same class on ${path}, and a body of its schema`, () => {
      for (const code of errorCodes) {
        const status = errors!.statusOf(code);
        assert.equal(Math.floor(status / 100), Math.floor(statuses[code] / 100), code);
        const body: unknown = JSON.parse(errors!.body({ code, message: "because" }, "r1"));
        assert.ok(errors!.schema.safeParse(body).success, `${code}: ${JSON.stringify(body)}`);
      }
    });
  }
});
