import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { settingsInForce } from "../../../../cli/assembly/settings-in-force.ts";
import { keyEntries } from "../../../../cli/config/keys.ts";
import { createApp } from "../../../../http/app.ts";
import { type SettingInForce, settingListSchema } from "../../../../http/system/settings.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";
import { resolve } from "../config/resolve.ts";

function find(settings: readonly SettingInForce[], section: string, key: string, model: string | null = null) {
  const found = settings.filter((one) => one.section === section && one.key === key && one.model === model);
  assert.equal(found.length, 1, `${section}.${key}`);
  const { value, source, name, place } = found[0]!;
  return [value, source, name, place];
}

describe("the settings in force", () => {
  const text = `command = "serve"
max_seqs = 7
[server]
port = 8080
tool_dispatch_url = "https://user:hush@tools.example/x"
[troupe]
cors_origins = ["https://user:hush@chat.example", "https://other.example"]
[[models]]
model_id = "a"
alias = "first"
max_model_len = 1024
[[models]]
model_id = "b"
`;

  it("have a value and its origin: the default, the file, a variable or a flag", () => {
    const settings = settingsInForce(
      resolve({ text, flags: { "--host": "127.0.0.1" }, environment: { TROUPE_MAX_QUEUE: "5" } }),
    );
    assert.deepEqual(find(settings, "", "max_seqs"), [7, "file", "max_seqs", "troupe.toml:2"]);
    assert.deepEqual(find(settings, "server", "host"), ["127.0.0.1", "flag", "--host", null]);
    assert.deepEqual(find(settings, "troupe", "max_queue"), [5, "environment", "TROUPE_MAX_QUEUE", null]);
    assert.deepEqual(find(settings, "troupe", "max_stored_responses"), [1000, "default", null, null]);
    assert.deepEqual(find(settings, "troupe", "state_dir"), [null, "default", null, null]);
    assert.deepEqual(find(settings, "models", "max_model_len", "first"), [
      1024,
      "file",
      "max_model_len",
      "troupe.toml:11",
    ]);
    assert.deepEqual(find(settings, "models", "max_model_len", "b"), [null, "default", null, null]);
  });

  it("name the flag of every model, and the default model", () => {
    const given = settingsInForce(resolve({ flags: { "--model-id": ["a", "b"], "--dtype": "auto" } }));
    assert.deepEqual(find(given, "models", "model_id", "b"), ["b", "flag", "--model-id", null]);
    const settings = settingsInForce(resolve({}));
    assert.deepEqual(find(settings, "models", "model_id", "the-default"), ["the-default", "default", null, null]);
  });

  it("come from the program that troupe is embedded in", () => {
    const settings = settingsInForce(resolve({ settings: { maxSeqs: 3, models: [{ modelId: "a" }] } }));
    assert.deepEqual(find(settings, "", "max_seqs"), [3, "program", "maxSeqs", null]);
    assert.deepEqual(find(settings, "models", "model_id", "a"), ["a", "program", "models[0].modelId", null]);
  });

  it("have the origin of the general key for what a model inherits", () => {
    const settings = settingsInForce(resolve({ flags: { "--chat-template": "t.jinja" } }));
    for (const section of ["", "models"]) {
      const model = section === "" ? null : "the-default";
      assert.deepEqual(find(settings, section, "chat_template", model).slice(0, 2), ["t.jinja", "flag"], section);
    }
  });

  it("show no secret", () => {
    const secret = "hush-hush-hush-hush-hush";
    const settings = settingsInForce(
      resolve({
        text,
        flags: { "--api-key": [secret], "--token-source": `literal:${secret}`, "--enable-search": true },
        environment: {
          TOOL_DISPATCH_SECRET: secret,
          SEARCH_API_KEY: secret,
          OTEL_EXPORTER_OTLP_ENDPOINT: `http://u:${secret}@x`,
        },
      }),
    );
    assert.doesNotMatch(JSON.stringify(settings), /hush/);
    assert.deepEqual(find(settings, "server", "api_key"), ["set", "flag", "--api-key", null]);
    assert.deepEqual(find(settings, "", "token_source"), ["set", "flag", "--token-source", null]);
    assert.deepEqual(find(settings, "search", "api_key").slice(0, 3), ["set", "environment", "SEARCH_API_KEY"]);
    assert.deepEqual(find(settings, "troupe", "cors_origins")[0], ["https://chat.example", "https://other.example"]);
    assert.deepEqual(find(settingsInForce(resolve({})), "server", "api_key"), [null, "default", null, null]);
    assert.deepEqual(find(settingsInForce(resolve({})), "", "token_source"), ["cache", "default", null, null]);
  });

  it("have every key that a server uses, and no other", () => {
    const settings = settingsInForce(resolve({}));
    const unused = keyEntries.filter(({ key, group }) => key.planned || group === "run" || group === "bench");
    for (const { field, name, group } of unused) {
      assert.ok(!settings.some((one) => one.key === name && one.section === group), field);
    }
    assert.ok(settings.length > 80);
    assert.ok(settings.every(({ value }) => value !== undefined));
  });

  it("are at /v1/system/config, unless disable_lists is set", async () => {
    const settings = settingsInForce(resolve({ text }));
    const inference = new FakeInference();
    const app = createApp({ inference, log: recordingLog(), settings });
    const reply = await request(app, "GET", "/v1/system/config");
    assert.deepEqual([reply.status, settingListSchema.parse(JSON.parse(reply.body)).data], [200, settings]);
    const bare = createApp({ inference, log: recordingLog() });
    assert.deepEqual(JSON.parse((await request(bare, "GET", "/v1/system/config")).body), { object: "list", data: [] });
    const quiet = createApp({ inference, log: recordingLog(), settings, config: { servesLists: false } });
    assert.equal((await request(quiet, "GET", "/v1/system/config")).status, 404);
  });
});
