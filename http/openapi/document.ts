// API document (OpenAPI 3.1): combines the route table and the operations of the protocols, and contains no other facts. Used
// by GET /api-doc/openapi.json and by protocols.ts, which writes docs/protocols.md.
import { z } from "zod";
import { createDocument, type oas31, type ZodOpenApiObject, type ZodOpenApiOperationObject } from "zod-openapi";
import type { Content, Operation, Tag } from "../operation.ts";
import type { DescribedRoute, RouteSettings } from "../route.ts";
import type { UnknownFields } from "../shared/unknown-fields.ts";
import { commonHeaders, errorAnswers, headerComponents, retryAfterHeader } from "./answers.ts";
import { type Example, examples } from "./examples.ts";
import { openBodies } from "./open-bodies.ts";

/** Version of the API; GET /v1/system/info reports the version of the server. */
const API_VERSION = "0.9.5";

/** Which part of a stream the schema describes, by content type. */
const streamUnits: Readonly<Record<string, string>> = {
  "text/event-stream": "the data of each event",
  "application/x-ndjson": "each line",
};
const UNAVAILABLE = "503";

const tags: Readonly<Record<Tag, string>> = {
  Inference: "Generation and embeddings",
  Audio: "Speech: texts spoken, audio transcribed.",
  Agents: "Files, sessions and approvals of requests whose tools the server runs",
  Ollama: "The models in the protocol of Ollama, for clients that know only that",
  Models: "The models of this server",
  "LoRA adapters": "Low-rank adapters of a model, loaded and unloaded at run time",
  Operations: "Health, metrics, and documents about the server",
  MCP: "The models as tools of the Model Context Protocol (MCP)",
};

export type ApiDocument = oas31.OpenAPIObject;

/** Headers that carry the API key; one of them is enough. */
const keySchemes = {
  bearer: { type: "http", scheme: "bearer" },
  apiKey: { type: "apiKey", in: "header", name: "x-api-key" },
} as const satisfies oas31.ComponentsObject["securitySchemes"];
const anyKeyScheme = Object.keys(keySchemes).map((name) => ({ [name]: [] }));

const withoutKeys =
  "The server accepts any API key. Start it with `api_key` or `api_keys_file`, or put a proxy in front of it, for authentication.";
const withKeys = "Requests need an API key of the server in the header `authorization` or `x-api-key`.";

interface DescribedSettings extends Pick<RouteSettings, "needsApiKey"> {
  readonly unknownFields: UnknownFields;
}

/** Builds the API document of `routes`. `needsApiKey`: whether all routes except the open ones need an API key. */
export function openApiDocument(
  routes: readonly DescribedRoute[],
  { needsApiKey, unknownFields }: DescribedSettings = { needsApiKey: false, unknownFields: "ignore" },
): ApiDocument {
  const names = new SchemaNames();
  const paths: NonNullable<ZodOpenApiObject["paths"]> = {};
  for (const route of routes) {
    const item = paths[route.path] ?? {};
    const needsKey = needsApiKey && !route.isOpen;
    const open = needsApiKey && !needsKey ? { security: [] } : {};
    const operation = { ...operationObject(route, names, needsKey), ...open };
    paths[route.path] = { ...item, [route.method.toLowerCase()]: operation };
  }
  const document = createDocument(
    {
      openapi: "3.1.0",
      info: {
        title: "troupe",
        version: API_VERSION,
        description: needsApiKey ? withKeys : withoutKeys,
        license: { name: "MIT", identifier: "MIT" },
      },
      tags: Object.entries(tags)
        .filter(([name]) => routes.some(({ operation }) => operation.tag === name))
        .map(([name, description]) => ({ name, description })),
      paths,
      ...(needsApiKey ? { security: anyKeyScheme } : {}),
      components: { headers: headerComponents, ...(needsApiKey ? { securitySchemes: keySchemes } : {}) },
    },
    { override: ({ jsonSchema }) => asExtension(jsonSchema) },
  );
  if (unknownFields === "ignore") openBodies(document, routes);
  return document;
}

/** Renames `support` to the extension `x-support`, because JSON Schema has no such keyword. */
function asExtension(schema: object): void {
  if (!("support" in schema)) return;
  Object.assign(schema, { "x-support": schema.support });
  delete schema.support;
}

/** Assigns an id to each schema without one, so that the document contains each schema only once, in its components. */
class SchemaNames {
  readonly #named = new Map<z.ZodType, z.ZodType>();

  /** Returns the schema with an id. A schema shared by several operations is named after the first of them. */
  named(schema: z.ZodType, { id }: Operation, kind: "Request" | "Response" | "Event"): z.ZodType {
    const meta = schema.meta();
    if (meta?.id !== undefined) return schema;
    const known = this.#named.get(schema);
    if (known !== undefined) return known;
    const name = `${id.charAt(0).toUpperCase()}${id.slice(1)}${kind}`;
    const named = schema.meta({ ...meta, id: name });
    this.#named.set(schema, named);
    return named;
  }
}

function operationObject(route: DescribedRoute, names: SchemaNames, needsKey: boolean): ZodOpenApiOperationObject {
  const { operation } = route;
  const { id, tag, summary, description, path, query, body, portSetting } = operation;
  const example = examples[id] ?? {};
  const params = {
    ...(path === undefined ? {} : { path: withExamples(path, example) }),
    ...(query === undefined ? {} : { query }),
  };
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(description === undefined ? {} : { description }),
    ...(portSetting === undefined ? {} : { servers: [serverOf(portSetting)] }),
    requestParams: params,
    ...(body === undefined ? {} : { requestBody: requestBody(body, operation, example, names) }),
    responses: { ...answers(route, example, names), ...errorAnswers(route, needsKey) },
  };
}

/** Returns the schema of the path parameters with their examples. */
function withExamples({ shape }: z.ZodObject, { path = {} }: Example): z.ZodObject {
  const named = Object.entries(shape).map(([name, schema]) => {
    const parameter = schema as z.ZodType;
    return [name, name in path ? parameter.meta({ ...parameter.meta(), examples: [path[name]] }) : parameter];
  });
  return z.strictObject(Object.fromEntries(named));
}

/** Describes the server address. Host and port are variables in the address, because they depend on the settings. */
function serverOf(portSetting: string): oas31.ServerObject {
  return {
    url: `http://{host}:{${portSetting}}`,
    variables: { host: { default: "localhost" }, [portSetting]: { default: "1235" } },
  };
}

function requestBody(body: z.ZodType, operation: Operation, { body: example }: Example, names: SchemaNames) {
  const schema = names.named(body, operation, "Request");
  const type = operation.takesForm ? "multipart/form-data" : "application/json";
  return { required: true, content: { [type]: { schema, example } } };
}

function answers(
  route: DescribedRoute,
  { answer: example }: Example,
  names: SchemaNames,
): ZodOpenApiOperationObject["responses"] {
  const { operation } = route;
  const headers = commonHeaders(route);
  return Object.fromEntries(
    Object.entries(operation.answers).map(([status, contents]) => {
      const description = contents.length === 1 ? (contents[0]?.description ?? "") : contents.map(inWords).join("\n\n");
      const types = contents.map((content) => {
        const media = mediaType(content, operation, names);
        return [content.contentType, status === "200" && example !== undefined ? { ...media, example } : media];
      });
      const ofStatus = status === UNAVAILABLE ? { ...headers, ...retryAfterHeader } : headers;
      return [status, { description, headers: ofStatus, content: Object.fromEntries(types) }];
    }),
  );
}

function inWords({ contentType, description }: Content): string {
  const unit = streamUnits[contentType];
  const note = unit === undefined ? "" : ` (The schema describes ${unit}.)`;
  return `\`${contentType}\`: ${description}${note}`;
}

function mediaType({ schema, contentType }: Content, operation: Operation, names: SchemaNames) {
  const kind = contentType in streamUnits ? "Event" : "Response";
  if (schema !== undefined) return { schema: names.named(schema, operation, kind) };
  return contentType.startsWith("text/") ? { schema: { type: "string" as const } } : {};
}
