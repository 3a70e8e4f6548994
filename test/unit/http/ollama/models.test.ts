import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { ModelEntry } from "../../../../actors/api/inference.ts";
import { createApp } from "../../../../http/app.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const generation = "6b".repeat(32);
const inference = new FakeInference();
const [tiny, other] = inference.entries as [ModelEntry, ModelEntry];
inference.entries = [{ ...tiny, adapters: [{ alias: "pirate", generation, createdAt: 1_700_000_100 }] }, other];
const app = createApp({ inference, log: recordingLog() });

const get = async (path: string) => JSON.parse((await request(app, "GET", path)).body);
const post = (path: string, body: object) => request(app, "POST", path, { body });

const known = {
  format: "gguf",
  family: "qwen3",
  families: ["qwen3"],
  parameter_size: "596.05M",
  quantization_level: "Q8_0",
};
const unknown = { format: "gguf", family: "", families: [], parameter_size: "", quantization_level: "" };

describe("GET /api/tags and /api/ps", () => {
  it("list the models and their adapters, with their known properties", async () => {
    const size = 639_446_688;
    const entry = (name: string, rest: object) => ({ name, model: name, size, ...rest });
    const own = entry("tiny", { digest: "5a".repeat(32), details: { parent_model: "", ...known } });
    const adapted = entry("tiny::pirate", { digest: generation, details: { parent_model: "tiny", ...known } });
    const unloaded = {
      ...entry("other", { digest: "0".repeat(64), details: { parent_model: "", ...unknown } }),
      size: 0,
    };
    assert.deepEqual(await get("/api/tags"), {
      models: [
        { ...own, modified_at: "2023-11-14T22:13:20.000Z" },
        { ...adapted, modified_at: "2023-11-14T22:15:00.000Z" },
        { ...unloaded, modified_at: "2023-11-14T22:13:21.000Z" },
      ],
    });
    const loaded = { expires_at: "9999-12-31T23:59:59Z", context_length: 4096 };
    assert.deepEqual(await get("/api/ps"), {
      models: [
        { ...own, ...loaded },
        { ...adapted, ...loaded },
      ],
    });
  });
});

describe("POST /api/show", () => {
  it("has the details, the context length and the capabilities, under either name and with a tag", async () => {
    for (const body of [{ model: "tiny" }, { name: "tiny:latest", verbose: true }, { model: "default" }, {}]) {
      const { status, body: shown } = await post("/api/show", body);
      assert.equal(status, 200, shown);
      assert.deepEqual(JSON.parse(shown), {
        parameters: "num_ctx 4096",
        details: { parent_model: "", ...known },
        model_info: {
          "general.architecture": "qwen3",
          "general.parameter_count": 596_049_920,
          "qwen3.context_length": 4096,
          "qwen3.embedding_length": 2,
        },
        capabilities: ["completion", "tools", "thinking", "embedding"],
        modified_at: "2023-11-14T22:13:20.000Z",
      });
    }
  });

  it("has the capabilities that the model has", async () => {
    const inference = new FakeInference();
    const [model] = inference.entries as [ModelEntry];
    const app = createApp({ inference, log: recordingLog() });
    const file = model.capabilities?.file;
    assert.ok(model.capabilities && file);
    for (const [changes, expected] of [
      [{ embeds: false, file: { ...file, reasons: false } }, ["completion", "tools"]],
      [{ embeds: false, file: { ...file, chats: false, reasons: false } }, ["completion"]],
      [{ generates: false }, ["embedding"]],
      [{ embeds: false, file: null }, ["completion"]],
      [{ generates: false, embedsTokens: true }, []],
    ] as const) {
      inference.entries = [{ ...model, capabilities: { ...model.capabilities, ...changes } }];
      const { body } = await request(app, "POST", "/api/show", { body: { model: "tiny" } });
      assert.deepEqual(JSON.parse(body).capabilities, expected);
    }
    inference.entries = [{ ...model, capabilities: null }];
    const { body } = await request(app, "POST", "/api/show", { body: { model: "tiny" } });
    const { capabilities, model_info, parameters } = JSON.parse(body);
    assert.deepEqual([capabilities, model_info, parameters], [[], {}, ""]);
  });

  it("shows the base model of an adapter, and nothing of an unknown model", async () => {
    const { details } = JSON.parse((await post("/api/show", { model: "tiny::pirate" })).body);
    assert.equal(details.parent_model, "tiny");
    const { status, body } = await post("/api/show", { model: "nope" });
    assert.equal(status, 404);
    assert.match(JSON.parse(body).error, /^model "nope" is not available/);
  });
});

describe("the other paths of the protocol", () => {
  it("give a version that clients with a minimum accept", async () => {
    const { version } = await get("/api/version");
    const [major, minor] = version.split(".").map(Number);
    assert.ok(major > 0 || minor >= 14, version);
  });

  it("reject changes of stored models with a specific error, and list the served paths on unknown ones", async () => {
    for (const [method, path, instead] of [
      ["POST", "/api/pull", "max_model_downloads"],
      ["POST", "/api/push", "POST /api/pull"],
      ["POST", "/api/create", "POST /api/pull"],
      ["POST", "/api/copy", "POST /api/pull"],
      ["DELETE", "/api/delete", "max_model_downloads"],
    ] as const) {
      const { status, body } = await request(app, method, path, { body: { model: "llama3.2" } });
      assert.equal(status, 400);
      assert.match(JSON.parse(body).error, new RegExp(`^${path} is not supported: .*${instead}`));
    }
    const { status, body } = await request(app, "POST", "/api/blobs/sha256:00");
    assert.equal(status, 404);
    assert.match(JSON.parse(body).error, /^there is nothing at \/api\/blobs.*\/api\/chat/);
    const wrong = await request(app, "GET", "/api/chat");
    assert.deepEqual([wrong.status, typeof JSON.parse(wrong.body).error], [405, "string"]);
  });

  it("answer the probe for a server", async () => {
    assert.equal((await request(app, "HEAD", "/")).status, 200);
  });
});

describe("POST /api/embed and /api/embeddings", () => {
  it("return one vector per text, and truncate long texts unless asked not to", async () => {
    const { status, body } = await post("/api/embed", { model: "tiny:latest", input: ["a", "b"], keep_alive: 0 });
    assert.equal(status, 200, body);
    const { total_duration, ...rest } = JSON.parse(body);
    assert.ok(Number.isInteger(total_duration) && total_duration > 0);
    const embeddings = [
      [0, 0.5],
      [1, 0.5],
    ];
    assert.deepEqual(rest, { model: "tiny:latest", embeddings, prompt_eval_count: 6 });
    assert.equal(inference.embedRequests.at(-1)?.truncateInputs, true);
    const one = await post("/api/embed", { input: "a", truncate: false });
    assert.deepEqual(JSON.parse(one.body).embeddings, [[0, 0.5]]);
    assert.equal(inference.embedRequests.at(-1)?.truncateInputs, false);
    const older = await post("/api/embeddings", { model: "tiny", prompt: "a", options: { temperature: 0 } });
    assert.deepEqual(JSON.parse(older.body), { embedding: [0, 0.5] });
  });

  it("refuse an adapter, shortened vectors and no input", async () => {
    for (const [body, error] of [
      [{ model: "tiny::pirate", input: "a" }, /^model: expected a model without an adapter/],
      [{ input: "a", dimensions: 0 }, /^dimensions: .*at least 1/],
      [{ input: [] }, /^input: /],
      [{}, /^input: /],
    ] as const) {
      const reply = await post("/api/embed", body);
      assert.equal(reply.status, 400, reply.body);
      assert.match(JSON.parse(reply.body).error, error);
    }
  });
});
