import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { namesModel } from "../../../../cli/config/config.ts";
import { unknownVariables } from "../../../../cli/config/environment.ts";
import { keyEntries } from "../../../../cli/config/keys.ts";
import { routes } from "../../../../http/routes.ts";
import { assertRefused, oneModel, resolve } from "./resolve.ts";

const file = `command = "serve"\nmax_seqs = 4\n[server]\nport = 1\nhost = "file"${oneModel}max_model_len = 64\n`;

describe("the files in deploy/", () => {
  const folder = new URL("../../../../../deploy/", import.meta.url);
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  const texts = files.map(({ parentPath, path, name }) => readFileSync(join(parentPath ?? path, name), "utf8"));

  it("use variables that are settings", () => {
    const names = texts.flatMap((text) => text.match(/\bTROUPE_[A-Z_]+/g) ?? []);
    assert.ok(names.includes("TROUPE_MODEL_ID"));
    assert.deepEqual(unknownVariables(Object.fromEntries(names.map((name) => [name, "x"]))), []);
  });

  it("probe paths that need no key", () => {
    const paths = texts.flatMap((text) => [...text.matchAll(/httpGet: \{ path: (\S+),/g)].map(([, path = ""]) => path));
    assert.deepEqual(new Set(paths), new Set(["/health", "/ready"]));
    for (const path of paths) assert.ok(routes.find((route) => route.path === path)?.isOpen, path);
  });
});

describe("a variable", () => {
  it("is TROUPE_ and the flag, overrides the file, and is overridden by the flag", () => {
    const environment = { TROUPE_MAX_SEQS: "8", TROUPE_PORT: "2", TROUPE_MAX_MODEL_LEN: "128" };
    const config = resolve({ text: file, environment, flags: { "--port": "3" } });
    assert.deepEqual([config.maxSeqs, config.server.port, config.server.host], [8, 3, "file"]);
    assert.deepEqual(
      config.models.map(({ modelId, maxModelLen }) => [modelId, maxModelLen]),
      [["a", 128]],
    );
  });

  it("takes precedence over the older variable of the same key", () => {
    const environment = { TROUPE_KEEP_ALIVE_INTERVAL: "5", KEEP_ALIVE_INTERVAL: "6" };
    assert.equal(resolve({ environment }).troupe.keepAliveInterval, 5);
    assert.equal(resolve({ environment: { KEEP_ALIVE_INTERVAL: "6" } }).troupe.keepAliveInterval, 6);
  });

  it("for a switch accepts the usual words", () => {
    const read = (word: string) =>
      resolve({ environment: { TROUPE_CPU: word, TROUPE_MMAP: word } }).models[0]?.device.cpu;
    for (const word of ["true", "1", "yes", "ON"]) assert.equal(read(word), true, word);
    for (const word of ["false", "0", "no", "off"]) assert.equal(read(word), false, word);
    assertRefused(
      { environment: { TROUPE_CPU: "maybe" } },
      /^environment: TROUPE_CPU expects true or false; got "maybe"/,
    );
    const { isolate } = resolve({ environment: { TROUPE_ISOLATE: "1" } }).troupe;
    assert.equal(isolate, "true");
    assert.equal(resolve({ environment: { TROUPE_MAX_SEQS: "1", TROUPE_PAGED_ATTN: "on" } }).pagedAttn.mode, "on");
  });

  it("for a repeatable key has commas, or is JSON", () => {
    const environment = {
      TROUPE_MODEL_ID: "a.gguf, b.gguf",
      TROUPE_ALIAS: '["one","two"]',
      TROUPE_API_KEY: "k1,k2",
      TROUPE_CORS_ORIGINS: "https://a.example,https://b.example",
      TROUPE_LORA: '[{"alias":"x","source":"s"},"y=t"]',
    };
    const { models, server, troupe } = resolve({ environment });
    assert.deepEqual(
      models.map(({ id, modelId }) => [id, modelId]),
      [
        ["one", "a.gguf"],
        ["two", "b.gguf"],
      ],
    );
    assert.deepEqual(server.apiKey, ["k1", "k2"]);
    assert.deepEqual(troupe.corsOrigins, ["https://a.example", "https://b.example"]);
    const loras = [
      { alias: "x", source: "s", revision: "main" },
      { alias: "y", source: "t", revision: "main" },
    ];
    assert.deepEqual(models[1]?.adapter.lora, loras);
    const one = resolve({ environment: { TROUPE_LORA: '{"alias":"x","source":"s"}' } });
    assert.deepEqual(one.models[0]?.adapter.lora, loras.slice(0, 1));
    assertRefused({ environment: { TROUPE_MODEL_ID: '["a", 1]', TROUPE_ALIAS: "x" } }, /TROUPE_ALIAS expects one name/);
    assertRefused({ environment: { TROUPE_LORA: "[broken" } }, /^environment: TROUPE_LORA expects entries/);
  });

  it("replaces the models of the file, unless a flag does", () => {
    const environment = { TROUPE_MODEL_ID: "b" };
    const idsOf = (flags = {}) => resolve({ text: file, environment, flags }).models.map(({ modelId }) => modelId);
    assert.deepEqual(idsOf(), ["b"]);
    assert.deepEqual(idsOf({ "--model-id": ["c", "d"] }), ["c", "d"]);
    assert.ok(namesModel({ command: "run", flags: {}, environment }));
    assert.ok(!namesModel({ command: "run", flags: {}, environment: { TROUPE_MODEL_ID: "" } }));
  });

  it("is ignored if it is empty or of another command, and checked like a flag otherwise", () => {
    assert.equal(resolve({ environment: { TROUPE_PORT: "" } }).server.port, 1234);
    resolve({ command: "bench", environment: { TROUPE_PORT: "many" } });
    assertRefused({ environment: { TROUPE_PORT: "many" } }, /^environment: TROUPE_PORT expects a whole number/);
    assertRefused({ environment: { TROUPE_API_KEY: "my secret" } }, /TROUPE_API_KEY expects .*not shown here$/);
    assertRefused(
      { environment: { TROUPE_MAX_IMAGE_LENGTH: "512" } },
      /^environment: "TROUPE_MAX_IMAGE_LENGTH" has no meaning/,
    );
    assertRefused(
      { environment: { TROUPE_KV_CACHE: "1GiB" }, flags: { "--gpu-memory-utilization": "0.5" } },
      'environment: "TROUPE_KV_CACHE" conflicts with "--gpu-memory-utilization"; remove one of them',
    );
  });

  it("of a Kubernetes service called troupe is not a setting", () => {
    const environment = { TROUPE_PORT: "tcp://10.0.0.1:1234", TROUPE_SERVICE_HOST: "10.0.0.1" };
    assert.equal(resolve({ environment }).server.port, 1234);
    const others = { TROUPE_PORT_1234_TCP_ADDR: "10.0.0.1", TROUPE_SERVICE_PORT_HTTP: "1234" };
    assert.deepEqual(unknownVariables({ ...environment, ...others }), []);
  });

  it("that begins with TROUPE_ and is not a setting causes a warning, with the nearest name", () => {
    const environment = { TROUPE_MAX_SEQ: "1", TROUPE_WASM_KERNELS: "plain", TROUPE_API_KEY: "x", HOME: "/" };
    assert.deepEqual(unknownVariables(environment), [
      'the environment variable TROUPE_MAX_SEQ is not a setting and is ignored; did you mean "TROUPE_MAX_SEQS"?',
    ]);
    assert.ok(
      keyEntries.every(
        ({ variables }) => unknownVariables(Object.fromEntries(variables.map((name) => [name, "x"]))).length === 0,
      ),
    );
  });
});
