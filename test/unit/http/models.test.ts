import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../http/app.ts";
import { modelListSchema, modelSchema } from "../../../http/models/operation.ts";
import { FakeInference } from "../../fixtures/fake-inference.ts";
import { recordingLog } from "../../fixtures/http-server.ts";
import { request } from "../../fixtures/socketless.ts";

const capabilities = { generates: true, embeds: false };
const inference = new FakeInference();
inference.entries = [
  { id: "org/talker", status: "loaded", createdAt: 5, capabilities },
  { id: "encoder", status: "loaded", createdAt: 6, capabilities: { generates: false, embeds: true } },
  { id: "sleeper", status: "unloaded", createdAt: 7, capabilities: null },
];
const app = createApp({ inference, log: recordingLog() });

async function get(path: string) {
  const reply = await request(app, "GET", path);
  return { status: reply.status, body: JSON.parse(reply.body) };
}

const entry = (id: string, created: number, status: string, tools_available: boolean) => {
  return { id, object: "model", created, owned_by: "local", status, tools_available };
};

describe("GET /v1/models", () => {
  it("lists the default model as such, then each, and which of them can call tools", async () => {
    const { body } = await get("/v1/models");
    modelListSchema.parse(body);
    assert.deepEqual(body, {
      object: "list",
      data: [
        entry("default", 5, "loaded", true),
        entry("org/talker", 5, "loaded", true),
        entry("encoder", 6, "loaded", false),
        entry("sleeper", 7, "unloaded", false),
      ],
    });
  });

  it("is empty where there is no model", async () => {
    const empty = new FakeInference();
    empty.entries = [];
    const reply = await request(createApp({ inference: empty, log: recordingLog() }), "GET", "/v1/models");
    assert.deepEqual(JSON.parse(reply.body), { object: "list", data: [] });
  });
});

describe("GET /v1/models/{model}", () => {
  it("shows one model, by its id or as the default one", async () => {
    const named = await get("/v1/models/org%2Ftalker");
    modelSchema.parse(named.body);
    assert.deepEqual(named, { status: 200, body: entry("org/talker", 5, "loaded", true) });
    assert.deepEqual((await get("/v1/models/default")).body, entry("default", 5, "loaded", true));
  });

  it("answers 404 for a model that is not there, and names those that are", async () => {
    const { status, body } = await get("/v1/models/nobody");
    assert.deepEqual([status, body.error.code, body.error.param], [404, "model_not_found", "model"]);
    assert.match(body.error.message, /org\/talker/);
  });
});
