import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { Ajv2020 } from "ajv/dist/2020.js";
import { createApp } from "../../../http/app.ts";
import type { HttpConfig } from "../../../http/context.ts";
import { openApiDocument } from "../../../http/openapi/document.ts";
import { examples } from "../../../http/openapi/examples.ts";
import { renderProtocols } from "../../../http/openapi/protocols.ts";
import { describedRoutes } from "../../../http/routes.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";

interface Documented {
  readonly operationId: string;
  readonly parameters?: readonly { readonly in: string; readonly name: string }[];
  readonly responses: Readonly<Record<string, { readonly headers: object; readonly content?: object }>>;
}

const document = openApiDocument(describedRoutes);
const paths = document.paths as Record<string, Record<string, Documented>>;
const operations = Object.entries(paths).flatMap(([path, item]) =>
  Object.entries(item).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
);
const appWith = (config: Partial<HttpConfig>) =>
  createApp({ inference: new FakeInference(), log: recordingLog(), config });
const app = appWith({ allowLoraUpdates: true, servesMcp: true, sharesModelFiles: true, downloadsModels: true });

describe("the API document", () => {
  it("is valid OpenAPI 3.1 of the contract's version", async () => {
    const validator = new Validator();
    const { valid, errors } = await validator.validate(JSON.parse(JSON.stringify(document)));
    assert.ok(valid, JSON.stringify(errors));
    assert.equal(validator.version, "3.1");
    const { openapi, info } = document;
    assert.deepEqual([openapi, info.version, info.license?.name], ["3.1.0", "0.9.5", "MIT"]);
  });

  it("has every route of the table, and no other", () => {
    const ofTable = describedRoutes.map(({ method, path }) => `${method} ${path}`);
    assert.deepEqual(operations.map(({ method, path }) => `${method} ${path}`).sort(), ofTable.sort());
  });

  it("names each operation once", () => {
    const ids = operations.map(({ operation }) => operation.operationId);
    assert.equal(new Set(ids).size, ids.length, ids.join(" "));
  });

  it("has the parameters of each path", () => {
    for (const { path, operation } of operations) {
      const declared = (operation.parameters ?? []).filter((parameter) => parameter.in === "path");
      const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
      assert.deepEqual(
        declared.map(({ name }) => name),
        inPath,
        path,
      );
    }
  });

  it("has only valid references with meaningful names", () => {
    const references = [...JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)].map(([, to = ""]) => to);
    assert.ok(references.length > operations.length);
    for (const reference of new Set(references)) {
      const [root, ...steps] = reference.split("/");
      assert.equal(root, "#", reference);
      const found = steps.reduce<unknown>((at, step) => (at as Record<string, unknown> | undefined)?.[step], document);
      assert.equal(typeof found, "object", reference);
    }
    const names = Object.keys(document.components?.schemas ?? {});
    assert.deepEqual(
      names.filter((name) => !/^[A-Z][A-Za-z0-9]+$/.test(name)),
      [],
    );
  });

  it("has retry-after on every 429 and 503 that allows a retry", () => {
    for (const { path, operation } of operations) {
      for (const status of ["429", "503"]) {
        const answer = operation.responses[status];
        if (answer !== undefined && path !== "/metrics")
          assert.ok("retry-after" in answer.headers, `${path} ${status}`);
      }
    }
  });

  it("has an example of every operation, which its schema accepts", () => {
    for (const { operation } of describedRoutes) {
      const { body, path, answer } = examples[operation.id] ?? {};
      if (operation.body !== undefined) assert.ok(operation.body.safeParse(body).success, operation.id);
      else if (operation.path !== undefined) assert.ok(operation.path.safeParse(path).success, operation.id);
      else {
        assert.ok(answer !== undefined, operation.id);
        const schema = operation.answers[200]?.[0]?.schema;
        if (schema !== undefined) assert.ok(schema.safeParse(answer).success, operation.id);
      }
    }
    assert.deepEqual(Object.keys(examples).sort(), describedRoutes.map(({ operation }) => operation.id).sort());
    const text = JSON.stringify(document);
    for (const example of Object.values(examples)) {
      for (const value of [example.body, example.answer, ...Object.values(example.path ?? {})]) {
        if (value !== undefined) assert.ok(text.includes(JSON.stringify(value)));
      }
    }
  });

  it("requires the input of a response that continues no other", () => {
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    ajv.addSchema(JSON.parse(JSON.stringify(document)), "document");
    const validate = ajv.compile({ $ref: "document#/components/schemas/CreateResponseRequest" });
    for (const [body, isValid] of [
      [{}, false],
      [{ model: "default" }, false],
      [{ input: "hi" }, true],
      [{ previous_response_id: "resp_1" }, true],
    ] as const) {
      assert.equal(validate(body), isValid, JSON.stringify(body));
    }
  });

  it("forbids additional properties in exactly the bodies whose unknown fields are rejected", async () => {
    const closedIn = ({ components }: { readonly components?: unknown }, name: string) => {
      const ajv = new Ajv2020({ strict: false, validateFormats: false });
      ajv.addSchema(JSON.parse(JSON.stringify({ components })), "document");
      const validate = ajv.compile({ $ref: `document#/components/schemas/${name}` });
      return (body: object) => !validate(body);
    };
    const messages = [{ role: "user", content: [{ type: "text", text: "hi", mood: 1 }] }];
    const bodies = {
      CreateChatCompletionRequest: { messages, zebra: 1 },
      CreateMessageRequest: { messages, zebra: 1 },
      CreateResponseRequest: { input: messages, zebra: 1 },
      OllamaChatRequest: { messages: [{ role: "user", content: "hi", mood: 1 }], options: { zebra: 1 } },
      OllamaShowRequest: { model: "a", zebra: 1 },
      LoadLoraAdapterRequest: { lora_name: "a", lora_path: "b", zebra: 1 },
    };
    const { body } = await request(appWith({ unknownFields: "refuse" }), "GET", "/api-doc/openapi.json");
    const strict = JSON.parse(body);
    for (const [name, example] of Object.entries(bodies)) {
      assert.equal(closedIn(document, name)(example), name.startsWith("LoadLora"), name);
      if (name in strict.components.schemas) assert.ok(closedIn(strict, name)(example), name);
    }
    const { ChatCompletion: answer } = strict.components.schemas;
    const { ChatCompletion: open } = JSON.parse(JSON.stringify(document)).components.schemas;
    assert.ok(answer !== undefined);
    assert.deepEqual(open, answer, "responses stay closed");
  });

  it("lists a route only if it is served", async () => {
    const pathsOf = async (config: Partial<HttpConfig>) => {
      const { body } = await request(appWith(config), "GET", "/api-doc/openapi.json");
      return new Set(Object.keys(JSON.parse(body).paths));
    };
    const adapters = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"];
    const downloads = ["/api/pull", "/api/delete"];
    const optional = ["/v1/system/downloads", "/v1/models/{model}/file", ...adapters, ...downloads, "/mcp"];
    const usual = await pathsOf({});
    assert.deepEqual(
      Object.keys(paths).filter((path) => !usual.has(path)),
      optional,
    );
    assert.ok(!(await pathsOf({ allowLoraUpdates: true })).has("/mcp"));
    assert.ok((await pathsOf({ servesMcp: true })).has("/mcp"));
  });

  it("is served unchanged, repeatedly", async () => {
    for (let i = 0; i < 2; i++) {
      const { status, headers, body } = await request(app, "GET", "/api-doc/openapi.json");
      assert.deepEqual([status, headers["content-type"]], [200, "application/json"]);
      assert.deepEqual(JSON.parse(body), JSON.parse(JSON.stringify(document)));
    }
  });
});

describe("docs/protocols.md", () => {
  it("matches the schemas", () => {
    const file = new URL("../../../../docs/protocols.md", import.meta.url);
    assert.equal(
      readFileSync(file, "utf8"),
      renderProtocols(describedRoutes),
      "the schemas have changed: run `npm run docs`",
    );
  });

  it("names every field of every body", () => {
    const sections = new Map(
      renderProtocols(describedRoutes)
        .split(/^## /m)
        .map((text): [string, string] => [text.slice(0, text.indexOf("\n")), text]),
    );
    const inCode = (text = ""): string[] => [...text.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name);
    const rowsOf = (text: string) => [...text.matchAll(/^\| `([^`]+)`/gm)].map(([, name = ""]) => name);
    const shared = rowsOf(sections.get("Shared fields") ?? "").filter((name) => !/[.[]/.test(name));
    /** Returns the fields that a section names: in its table, its lists, and by reference to others. */
    const namedBy = (endpoint: string): ReadonlySet<string> => {
      const text = sections.get(endpoint) ?? "";
      const [, same, except] = /^Takes the fields of \[([^\]]+)\][^ ]*?(?: except (.*))?\.$/m.exec(text) ?? [];
      if (same !== undefined) {
        const left = new Set(inCode(except));
        return new Set([...namedBy(same)].filter((name) => !left.has(name)));
      }
      const lines = text.split("\n");
      const [taken = ""] = lines.filter((line) => line.startsWith("[Shared fields]"));
      const runs = [...taken.matchAll(/`(\w+)`(?: \(required\))? to `(\w+)`/g)].flatMap(([, first = "", last = ""]) =>
        shared.slice(shared.indexOf(first), shared.indexOf(last) + 1),
      );
      const listed = lines.filter((line) => /^(?:- `|As in )/.test(line)).flatMap(inCode);
      const all = taken.includes("): all") ? shared : [];
      return new Set([...rowsOf(text), ...listed, ...inCode(taken), ...runs, ...all]);
    };
    let checked = 0;
    for (const { method, path } of describedRoutes) {
      const item = document.paths?.[path]?.[method.toLowerCase() as "post"];
      const body = item?.requestBody !== undefined && "content" in item.requestBody ? item.requestBody.content : {};
      const { $ref: target = "" } = (Object.values(body)[0]?.schema ?? {}) as { $ref?: string };
      const schema = document.components?.schemas?.[target.split("/").at(-1) ?? ""];
      const properties = Object.keys((schema as { properties?: object } | undefined)?.properties ?? {});
      const named = namedBy(`${method} ${path}`);
      for (const name of properties) assert.ok(named.has(name), `${method} ${path}: ${name}`);
      checked += properties.length;
    }
    assert.ok(checked > 500, `${checked} fields`);
  });
});

describe("the API explorer", () => {
  const get = (path: string) => request(app, "GET", path);

  it("is a page with only relative, served addresses", async () => {
    const { status, headers, body } = await get("/docs");
    assert.deepEqual([status, headers["content-type"]], [200, "text/html; charset=utf-8"]);
    const addresses = [...body.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, address]) => address);
    assert.equal(addresses.length, 4);
    for (const address of addresses) {
      const asset = await get(`/${address}`);
      assert.equal(asset.status, 200, address);
      const type = asset.headers["content-type"] ?? "";
      assert.ok(type === "image/png" || type.endsWith("charset=utf-8"), `${address}: ${type}`);
      assert.ok(asset.body.length > 100, address);
    }
    assert.match((await get("/docs/start.js")).body, /url: "api-doc\/openapi\.json"/);
  });

  it("forbids foreign resources and inline scripts", async () => {
    const { headers, body } = await get("/docs");
    const policy = headers["content-security-policy"] ?? "";
    assert.match(policy, /^default-src 'none'; script-src 'self';/);
    assert.doesNotMatch(policy, /https?:|\*/);
    assert.doesNotMatch(body, /https?:|<script>|\son\w+=/);
  });

  it("serves no other file for any spelling of its name", async () => {
    for (const name of [
      "package.json",
      "..%2fpackage.json",
      "%2e%2e",
      "..",
      "__proto__",
      "toString",
      "%00",
      "start.js%00",
    ]) {
      const { status, body } = await get(`/docs/${name}`);
      assert.deepEqual([status, JSON.parse(body).error.code], [404, "not_found"], name);
    }
  });
});
