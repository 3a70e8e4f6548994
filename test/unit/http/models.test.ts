import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { builtInDefaults } from "../../../engines/sampling-defaults.ts";
import { createApp } from "../../../http/app.ts";
import { modelPageSchema } from "../../../http/models/messages-form.ts";
import { modelListSchema, modelSchema } from "../../../http/models/operation.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";

const sizes = { parameterCount: 1, weightBytes: 2, kvCacheBytes: 4, embeddingLength: 3, file: null };
const lengths = { maxModelLength: 4096, trainedContext: 8192, ...sizes };
const capabilities = { generates: true, embeds: false, ...lengths };
const inference = new FakeInference();
inference.entries = [
  {
    id: "org/talker",
    status: "loaded",
    createdAt: 5,
    path: "/models/tiny.gguf",
    defaults: builtInDefaults,
    loadProgress: null,
    capabilities,
    adapters: [],
  },
  {
    id: "encoder",
    status: "loaded",
    createdAt: 6,
    path: "/models/tiny.gguf",
    defaults: builtInDefaults,
    loadProgress: null,
    capabilities: { generates: false, embeds: true, ...lengths },
    adapters: [],
  },
  {
    id: "sleeper",
    status: "unloaded",
    createdAt: 7,
    path: "/models/tiny.gguf",
    defaults: builtInDefaults,
    loadProgress: null,
    capabilities: null,
    adapters: [],
  },
];
const app = createApp({ inference, log: recordingLog() });

async function get(path: string) {
  const reply = await request(app, "GET", path);
  return { status: reply.status, body: JSON.parse(reply.body) };
}

const defaults = {
  temperature: 0.8,
  top_k: 40,
  top_p: 0.95,
  min_p: 0.05,
  repetition_penalty: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
  max_tokens: null,
};

const entry = (id: string, created: number, status: string, tools_available: boolean) => {
  // The lengths of a model are unknown until the model has been loaded for the first time.
  const known =
    status === "loaded"
      ? {
          ...{ max_model_len: 4096, trained_context: 8192, parameter_count: 1, weight_bytes: 2, kv_cache_bytes: 4 },
          input_modalities: ["text"],
        }
      : {};
  const generating = id === "encoder" ? {} : { defaults };
  return { id, object: "model", created, owned_by: "local", status, ...known, ...generating, tools_available };
};

describe("GET /v1/models", () => {
  it("lists the default model first, then all models, and whether they can call tools", async () => {
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

  it("lists the adapters of a model after it, as models", async () => {
    const adapted = new FakeInference();
    const adapter = (alias: string, createdAt: number) => ({ alias, generation: "5a".repeat(32), createdAt });
    adapted.entries = [
      {
        id: "a",
        status: "loaded",
        createdAt: 5,
        path: "/models/tiny.gguf",
        defaults: builtInDefaults,
        loadProgress: null,
        capabilities,
        adapters: [adapter("x::y", 8), adapter("z", 9)],
      },
      {
        id: "a::z",
        status: "unloaded",
        createdAt: 6,
        path: "/models/tiny.gguf",
        defaults: builtInDefaults,
        loadProgress: null,
        capabilities: null,
        adapters: [],
      },
    ];
    const one = createApp({ inference: adapted, log: recordingLog() });
    const list = JSON.parse((await request(one, "GET", "/v1/models")).body);
    modelListSchema.parse(list);
    const card = (id: string, root: string, created: number) => {
      const generation = { adapter_generation: "5a".repeat(32) };
      return { ...entry(id, created, "loaded", true), root, parent: "a", ...generation };
    };
    const cards = [card("a::x%3A%3Ay", "x::y", 8), card("a::z#2", "z", 9)];
    assert.deepEqual(list.data, [
      entry("default", 5, "loaded", true),
      entry("a", 5, "loaded", true),
      ...cards,
      entry("a::z", 6, "unloaded", false),
    ]);
    for (const [name, shown] of [
      ["a::x%3A%3Ay", cards[0]],
      ["x::y", cards[0]],
      ["z", cards[1]],
      ["a::z#2", cards[1]],
      ["a::z", entry("a::z", 6, "unloaded", false)],
    ] as const) {
      const reply = await request(one, "GET", `/v1/models/${encodeURIComponent(name)}`);
      assert.deepEqual(JSON.parse(reply.body), shown, name);
    }
  });

  it("is empty without models", async () => {
    const empty = new FakeInference();
    empty.entries = [];
    const reply = await request(createApp({ inference: empty, log: recordingLog() }), "GET", "/v1/models");
    assert.deepEqual(JSON.parse(reply.body), { object: "list", data: [] });
  });
});

describe("the models in the form of the messages protocol", () => {
  const versioned = (path: string, query = "", name = "anthropic-version") =>
    request(app, "GET", path, { query, headers: { [name]: "2023-06-01" } }).then((reply) => ({
      ...reply,
      body: JSON.parse(reply.body),
    }));
  const info = (id: string, created: number) => {
    return { type: "model", id, display_name: id, created_at: new Date(created * 1000).toISOString() };
  };
  const infos = [info("default", 5), info("org/talker", 5), info("encoder", 6), info("sleeper", 7)];
  const page = (from: number, to: number, has_more: boolean) => {
    const data = infos.slice(from, to);
    return { data, has_more, first_id: data.at(0)?.id ?? null, last_id: data.at(-1)?.id ?? null };
  };

  it("are a page if the version header is sent, under either name", async () => {
    for (const name of ["anthropic-version", "alt-version"]) {
      const { status, body } = await versioned("/v1/models", "", name);
      modelPageSchema.parse(body);
      assert.deepEqual([status, body], [200, page(0, 4, false)]);
    }
    assert.deepEqual((await versioned("/v1/models/org%2Ftalker")).body, infos[1]);
  });

  it("are paged in both directions", async () => {
    const pages: readonly (readonly [query: string, from: number, to: number, hasMore: boolean])[] = [
      ["limit=3", 0, 3, true],
      ["limit=3&after_id=encoder", 3, 4, false],
      ["limit=1&after_id=default", 1, 2, true],
      ["limit=1000&after_id=sleeper", 4, 4, false],
      ["limit=2&before_id=sleeper", 1, 3, true],
      ["limit=2&before_id=encoder", 0, 2, false],
      ["before_id=default", 0, 0, false],
    ];
    for (const [query, from, to, hasMore] of pages) {
      assert.deepEqual((await versioned("/v1/models", query)).body, page(from, to, hasMore), query);
    }
  });

  it("have errors of that protocol, which name the parameter", async () => {
    for (const [query, param] of [
      ["limit=0", "limit"],
      ["limit=1001", "limit"],
      ["limit=x", "limit"],
      ["after_id=nobody", "after_id"],
      ["before_id=nobody", "before_id"],
      ["before_id=default&after_id=default", "before_id"],
    ]) {
      const { status, body } = await versioned("/v1/models", query);
      assert.deepEqual(
        [status, body.type, body.error.type, body.error.details.param],
        [400, "error", "invalid_request_error", param],
      );
    }
    for (const path of ["/v1/models/nobody", "/v1/nothing"]) {
      const { status, body, headers } = await versioned(path);
      assert.deepEqual([status, body.type, body.error.type], [404, "error", "not_found_error"], path);
      assert.equal(body.request_id, headers["request-id"]);
    }
  });
});

describe("GET /v1/models/{model}", () => {
  it("shows a model by its id or as the default model", async () => {
    const named = await get("/v1/models/org%2Ftalker");
    modelSchema.parse(named.body);
    assert.deepEqual(named, { status: 200, body: entry("org/talker", 5, "loaded", true) });
    assert.deepEqual((await get("/v1/models/default")).body, entry("default", 5, "loaded", true));
  });

  it("returns 404 for an unknown model, with the known ones", async () => {
    const { status, body } = await get("/v1/models/nobody");
    assert.deepEqual([status, body.error.code, body.error.param], [404, "model_not_found", "model"]);
    assert.match(body.error.message, /org\/talker/);
  });

  it("gives the file of a model only if the files are shared", async () => {
    const folder = mkdtempSync(join(tmpdir(), "troupe-models-"));
    const path = join(folder, "tiny é.gguf");
    writeFileSync(path, "GGUF and the rest");
    const sharing = new FakeInference();
    const entry = {
      status: "loaded",
      createdAt: 5,
      defaults: builtInDefaults,
      loadProgress: null,
      capabilities,
      adapters: [],
    } as const;
    sharing.entries = [
      { ...entry, id: "a/tiny", path },
      { ...entry, id: "split", path: join(folder, "big-00001-of-00002.gguf") },
      { ...entry, id: "gone", path: join(folder, "gone.gguf") },
    ];
    const open = createApp({ inference: sharing, log: recordingLog(), config: { sharesModelFiles: true } });
    const reply = await request(open, "GET", "/v1/models/a%2Ftiny/file");
    assert.deepEqual([reply.status, reply.body], [200, "GGUF and the rest"]);
    assert.equal(reply.headers["x-file-bytes"], "17");
    assert.equal(reply.headers["content-disposition"], "attachment; filename*=UTF-8''tiny%20%C3%A9.gguf");
    for (const [id, code] of [
      ["split", "unsupported"],
      ["gone", "not_found"],
      ["other", "model_not_found"],
    ] as const) {
      const refused = await request(open, "GET", `/v1/models/${id}/file`);
      assert.equal(JSON.parse(refused.body).error.code, code);
    }
    const list = JSON.parse((await request(open, "GET", "/v1/models")).body);
    assert.deepEqual(
      list.data.map(({ file_name }: { readonly file_name?: string }) => file_name),
      ["tiny é.gguf", "tiny é.gguf", undefined, "gone.gguf"],
    );
    modelListSchema.parse(list);
    const closed = createApp({ inference: sharing, log: recordingLog() });
    assert.equal((await request(closed, "GET", "/v1/models/a%2Ftiny/file")).status, 404);
    assert.ok(!(await request(closed, "GET", "/v1/models")).body.includes("file_name"));
    rmSync(folder, { recursive: true });
  });
});
