import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../http/app.ts";
import { loraErrors } from "../../../http/lora/errors.ts";
import { loraAdapterListSchema, loraAdapterSchema } from "../../../http/lora/response.ts";
import { type ErrorCode, ServerError } from "../../../runtime/errors.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { FakeLora } from "../../fixtures/fakes/fake-lora.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";

const LOAD = "/v1/load_lora_adapter";
const UNLOAD = "/v1/unload_lora_adapter";
const LIST = "/v1/lora_adapters";
const generation = "5a".repeat(32);

type Json = ReturnType<typeof JSON.parse>;

function setUp({ allowed = true, lora = new FakeLora() }: { allowed?: boolean; lora?: FakeLora | null } = {}) {
  const inference = new FakeInference();
  const [tiny, other] = inference.entries;
  inference.entries = [{ ...tiny!, adapters: [{ alias: "known", generation, createdAt: 7 }] }, other!];
  const log = recordingLog();
  const app = createApp({ inference, lora, log, config: { allowLoraUpdates: allowed } });
  const send = async (method: string, path: string, body?: Json, more: Parameters<typeof request>[3] = {}) => {
    const reply = await request(app, method, path, { ...(body === undefined ? {} : { body }), ...more });
    return { status: reply.status, headers: reply.headers, body: JSON.parse(reply.body) };
  };
  return { app, lora: lora as FakeLora, log, send };
}

/** Returns the status of an error response, and the type, code and field of its error. */
function failed({ status, body }: { status: number; body: Json }) {
  assert.ok(loraErrors.schema.safeParse(body).success, JSON.stringify(body));
  return [status, body.error.type, body.error.code, body.error.param];
}

const wrong = (status: number, code: string, param: string | null) => [status, "invalid_request_error", code, param];

describe("POST /v1/load_lora_adapter", () => {
  it("loads an adapter under a trimmed alias on the default model", async () => {
    const { lora, send } = setUp();
    const { status, body } = await send("POST", LOAD, { lora_name: "  my adapter ", lora_path: "a/b" });
    assert.equal(status, 200);
    loraAdapterSchema.parse(body);
    const { generation: made, ...rest } = body;
    assert.match(made, /^[0-9a-f]{64}$/);
    const shown = { id: "my adapter", object: "lora_adapter", source: "a/b", revision: "main", rank: 8, bytes: 4096 };
    assert.deepEqual(rest, shown);
    assert.deepEqual(lora.loads, [
      { model: "tiny", alias: "my adapter", path: "a/b", replace: false, expectedGeneration: null },
    ]);
  });

  it("replaces on request under either field name, and only the expected generation", async () => {
    const { lora, send } = setUp();
    const adapter = { lora_name: "a", lora_path: "p", model: "other" };
    const policies = [
      { load_inplace: true },
      { replace: true },
      { load_inplace: true, replace: true, expected_generation: generation.toUpperCase() },
      { load_inplace: null, replace: false },
    ];
    for (const policy of policies) assert.equal((await send("POST", LOAD, { ...adapter, ...policy })).status, 200);
    assert.deepEqual(
      lora.loads.map(({ model, replace, expectedGeneration }) => [model, replace, expectedGeneration]),
      [
        ["other", true, null],
        ["other", true, null],
        ["other", true, generation],
        ["other", false, null],
      ],
    );
  });

  it("refuses invalid requests with the error names of these routes", async () => {
    const { lora, send } = setUp();
    const good = { lora_name: "a", lora_path: "p" };
    const cases: readonly (readonly [Json, ReturnType<typeof wrong>])[] = [
      [{ ...good, lora_name: " \t" }, wrong(400, "invalid_lora_name", "lora_name")],
      [{ ...good, lora_name: "ü".repeat(129) }, wrong(400, "invalid_lora_name", "lora_name")],
      [{ ...good, lora_path: "" }, wrong(400, "invalid_adapter_path", "lora_path")],
      [{ ...good, lora_path: "a\0b" }, wrong(400, "invalid_adapter_path", "lora_path")],
      [{ ...good, lora_path: "p".repeat(5000) }, wrong(400, "invalid_adapter_path", "lora_path")],
      [{ ...good, expected_generation: generation }, wrong(400, "invalid_lora_load_policy", "expected_generation")],
      [{ ...good, model: "tiny::known" }, wrong(400, "invalid_model_operation", "model")],
      [{ ...good, model: "known" }, wrong(400, "invalid_model_operation", "model")],
      [{ ...good, model: "nobody" }, wrong(404, "model_not_found", "model")],
      [{ ...good, lora_name: 5 }, wrong(422, "invalid_request_body", "lora_name")],
      [{ lora_name: "a" }, wrong(422, "invalid_request_body", "lora_path")],
      [{ ...good, lora_int_id: 1 }, wrong(422, "invalid_request_body", "lora_int_id")],
      [{ ...good, load_inplace: "yes" }, wrong(422, "invalid_request_body", "load_inplace")],
      [{ ...good, load_inplace: true, replace: false }, wrong(422, "invalid_request_body", "replace")],
      [
        { ...good, load_inplace: true, expected_generation: "5a" },
        wrong(422, "invalid_request_body", "expected_generation"),
      ],
      [[], wrong(422, "invalid_request_body", null)],
    ];
    for (const [body, expected] of cases) {
      assert.deepEqual(failed(await send("POST", LOAD, body)), expected, JSON.stringify(body).slice(0, 100));
    }
    const json = { "content-type": "application/json" };
    const broken = await send("POST", LOAD, "{", { headers: json });
    assert.deepEqual(failed(broken), wrong(400, "malformed_json", null));
    const text = await send("POST", LOAD, "{}", { headers: { "content-type": "text/plain" } });
    assert.deepEqual(failed(text), wrong(415, "invalid_content_type", null));
    assert.deepEqual(failed(await send("PUT", LOAD)), wrong(405, "method_not_allowed", null));
    assert.deepEqual(lora.loads, []);
  });

  it("accepts and ignores any lora_int_id", async () => {
    const { send } = setUp();
    await send("POST", LOAD, { lora_name: "a", lora_path: "p" });
    for (const lora_int_id of [-1, null, 7]) {
      const { status } = await send("POST", "/v1/unload_lora_adapter", { lora_name: "a", lora_int_id });
      assert.notEqual(status, 422);
    }
    assert.equal((await send("POST", "/v1/unload_lora_adapter", { lora_name: "a", lora_int_id: "x" })).status, 422);
  });

  it("accepts aliases of up to 256 bytes", async () => {
    const { send } = setUp();
    assert.equal((await send("POST", LOAD, { lora_name: "ü".repeat(128), lora_path: "p" })).status, 200);
  });

  it("continues if the client disconnects", async () => {
    const { app, lora } = setUp();
    let open = () => {};
    lora.gate = new Promise((resolve) => {
      open = resolve;
    });
    const aborter = new AbortController();
    void request(app, "POST", LOAD, { body: { lora_name: "a", lora_path: "p" }, signal: aborter.signal });
    aborter.abort();
    open();
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(
      lora.loads.map(({ alias }) => alias),
      ["a"],
    );
  });

  const codes: readonly (readonly [ErrorCode, number, string?])[] = [
    ["invalid_adapter_file", 400],
    ["adapter_path_forbidden", 403],
    ["adapter_file_forbidden", 403],
    ["adapter_path_not_found", 404],
    ["adapter_file_not_found", 404],
    ["lora_runtime_unavailable", 409],
    ["lora_adapter_already_loaded", 409],
    ["lora_generation_mismatch", 409],
    ["lora_rank_limit_exceeded", 409],
    ["lora_adapter_limit_exceeded", 409],
    ["lora_byte_limit_exceeded", 409],
    ["lora_alias_limit_exceeded", 409],
    ["adapter_file_changed", 409],
    ["model_state_conflict", 409],
    ["body_too_large", 413, "request_body_too_large"],
    ["lora_adapter_file_too_large", 413],
    ["invalid_lora_adapter", 422],
    ["lora_load_busy", 429],
    ["lora_load_task_failed", 500],
    ["internal", 500, "internal_error"],
    ["adapter_storage_unavailable", 503],
    ["lora_storage_unavailable", 503],
    ["lora_device_load_failed", 503],
  ];
  for (const [code, status, name = code] of codes) {
    it(`answers ${code} with ${status} ${name}`, async () => {
      const { lora, send } = setUp();
      lora.failure = new ServerError(code, "because");
      const reply = await send("POST", LOAD, { lora_name: "a", lora_path: "p" });
      const type = status < 500 ? "invalid_request_error" : "server_error";
      assert.deepEqual(failed(reply), [status, type, name, null]);
      if (code === "lora_load_busy") assert.equal(reply.headers["retry-after"], "1");
    });
  }

  it("hides the message of an internal error", async () => {
    const { lora, log, send } = setUp();
    lora.failure = new Error("secret") as ServerError;
    const reply = await send("POST", LOAD, { lora_name: "a", lora_path: "p" });
    assert.deepEqual(failed(reply), [500, "server_error", "internal_error", null]);
    assert.doesNotMatch(JSON.stringify(reply.body), /secret/);
    assert.equal(log.lines.filter(({ level }) => level === "error").length, 1);
  });
});

describe("POST /v1/unload_lora_adapter", () => {
  it("returns the unloaded adapter, and ignores lora_int_id", async () => {
    const { lora, send } = setUp();
    const loaded = await send("POST", LOAD, { lora_name: "a", lora_path: "p" });
    const body = { lora_name: " a ", expected_generation: generation, lora_int_id: 3 };
    assert.deepEqual(await send("POST", UNLOAD, body).then(({ body }) => body), loaded.body);
    assert.deepEqual(lora.unloads, [{ model: "tiny", alias: "a", expectedGeneration: generation }]);
  });

  it("refuses an unknown alias and unknown fields", async () => {
    const { send } = setUp();
    const none = await send("POST", UNLOAD, { lora_name: "nobody" });
    assert.deepEqual(failed(none), wrong(404, "lora_adapter_not_found", null));
    const unknown = await send("POST", UNLOAD, { lora_name: "a", lora_path: "p" });
    assert.deepEqual(failed(unknown), wrong(422, "invalid_request_body", "lora_path"));
  });
});

describe("GET /v1/lora_adapters", () => {
  it("lists adapters, the generations in memory, and the limits", async () => {
    const { send } = setUp();
    const { body: loaded } = await send("POST", LOAD, { lora_name: "a", lora_path: "p" });
    const { status, body } = await send("GET", LIST);
    assert.equal(status, 200);
    loraAdapterListSchema.parse(body);
    assert.deepEqual(body, {
      object: "list",
      data: [loaded],
      failed: [],
      generations: [
        { generation: loaded.generation, aliases: ["a"], rank: 8, bytes: 4096, retired: false, active_leases: 0 },
        { generation: "e".repeat(64), aliases: [], rank: 4, bytes: 1024, retired: true, active_leases: 2 },
      ],
      resident_generations: 2,
      retired_generations: 1,
      resident_bytes: 5120,
      max_adapters: 16,
      max_rank: 256,
      max_bytes: 8589934592,
    });
  });

  it("hides the sources if requests cannot load adapters", async () => {
    const lora = new FakeLora();
    await lora.load({ model: "tiny", alias: "a", path: "/secret", replace: false, expectedGeneration: null });
    const { body } = await setUp({ allowed: false, lora }).send("GET", LIST);
    assert.deepEqual(Object.keys(body.data[0]), ["id", "object", "generation", "rank", "bytes"]);
    assert.doesNotMatch(JSON.stringify(body), /secret/);
  });

  it("accepts the parameter model once, and no other", async () => {
    const { send } = setUp();
    const list = (query: string) => send("GET", LIST, undefined, { query });
    for (const query of ["", "model=other", "model=default"]) assert.equal((await list(query)).status, 200, query);
    assert.deepEqual(failed(await list("model=nobody")), wrong(404, "model_not_found", "model"));
    assert.deepEqual(failed(await list("model=tiny%3A%3Aknown")), wrong(400, "invalid_model_operation", "model"));
    assert.deepEqual(failed(await list("modle=tiny")), wrong(400, "invalid_query", "modle"));
    assert.deepEqual(failed(await list("__proto__=1")), wrong(400, "invalid_query", "__proto__"));
    assert.deepEqual(failed(await list("model=tiny&model=tiny")), wrong(400, "invalid_query", "model"));
  });

  it("reports that no model takes adapters", async () => {
    const { send } = setUp({ lora: null });
    assert.deepEqual(failed(await send("GET", LIST)), wrong(409, "lora_runtime_unavailable", "model"));
    const load = await send("POST", LOAD, { lora_name: "a", lora_path: "p" });
    assert.deepEqual(failed(load), wrong(409, "lora_runtime_unavailable", "model"));
  });
});

describe("loading and unloading adapters if not allowed", () => {
  it("has no route", async () => {
    const { send } = setUp({ allowed: false });
    const unknown = await send("POST", "/v1/nowhere", {});
    for (const path of [LOAD, UNLOAD]) {
      const { status, headers, body } = await send("POST", path, { lora_name: "a", lora_path: "p" });
      assert.deepEqual([status, body.error.code, headers.allow], [404, "not_found", undefined]);
      assert.equal(body.error.message.replace(path, "/v1/nowhere"), unknown.body.error.message);
      assert.doesNotMatch(unknown.body.error.message, /load_lora_adapter/);
    }
  });

  it("is counted like any unknown path", async () => {
    const { app, send } = setUp({ allowed: false });
    await send("POST", LOAD, { lora_name: "a", lora_path: "p" });
    const { body } = await request(app, "GET", "/metrics");
    assert.match(body, /http_requests_total\{method="POST",path="<unmatched>",model="none",status="404"\} 1/);
  });
});
