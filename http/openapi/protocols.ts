// Generator of docs/protocols.md: the fields of each endpoint, and the error codes with their statuses, from the API document
// and the error table. write-protocols.ts writes the file; a test fails if the file is out of date.
import { type ErrorCode, errorCodes, errorMeaning } from "../../runtime/errors.ts";
import { code, markdownTable } from "../../runtime/markdown-table.ts";
import { commonErrors, type ErrorFormat, saysWhenToRetry } from "../errors.ts";
import type { DescribedRoute } from "../route.ts";
import { codesOf } from "./answers.ts";
import { describedFields, namesOf } from "./described-fields.ts";
import { type ApiDocument, openApiDocument } from "./document.ts";
import { type Field, fieldsOf, type Schema } from "./fields.ts";
import { missingFields, SharedFields } from "./shared-fields.ts";

/** Maximum number of fields by which an endpoint may differ from the earlier one that it refers to. */
const MAX_EXCEPTIONS = 12;
/** Minimum number of consecutive shared fields that are written as first `to` last. */
const MIN_RUN = 4;

const introduction = `# Protocols

<!-- Generated from the request schemas and the route table by \`npm run docs\`; edits are lost. -->

The body fields of each endpoint and the error codes. Parameters in paths and queries, headers and responses are in the API
document: a running server shows it at \`/docs\` and serves it at \`/api-doc/openapi.json\`.

- \`a[].b\` is the field \`b\` of each element of the array \`a\`. "Fields:" lists inner fields without a description; the API
  document has their types and says which are required. Null in an optional field means the same as no field.
- _Ignored_ fields are accepted for compatibility. They are validated but have no effect; the server logs the first use.
- _Refused_ fields get the error \`unsupported\`. Null and values that ask for nothing, such as an empty list, are accepted.
- A field with values after it (\`type\` = "a") is ignored or refused only with these values.
- Unknown fields of requests to models are ignored and listed in the response header \`x-ignored-fields\`. A misspelt name of a
  known field gets \`invalid_value\`; with \`unknown_fields = "refuse"\` every unknown field does. Most other endpoints refuse
  all unknown fields.
- Default _the model's_: see \`defaults\` in GET /v1/models.`;

const sharedIntroduction =
  "Fields that at least three endpoints take with the same meaning. Each endpoint names those it takes; `a` to `d` means all\n" +
  "top-level rows from `a` to `d`.";

interface Endpoint {
  readonly route: DescribedRoute;
  readonly fields: readonly Field[];
}

/** Returns the text of docs/protocols.md. */
export function renderProtocols(routes: readonly DescribedRoute[]): string {
  const document = openApiDocument(routes);
  const withBody = routes.filter(({ operation }) => operation.body !== undefined);
  const withoutBody = routes.filter(({ operation }) => operation.body === undefined);
  const endpoints = withBody.map((route) => ({ route, fields: bodyFields(route, document) }));
  const references = new Map(endpoints.map((endpoint, at) => [endpoint, reference(endpoint, endpoints.slice(0, at))]));
  const described = endpoints.filter((endpoint) => references.get(endpoint) === null);
  const shared = new SharedFields(described.map(({ route, fields }) => ({ endpoint: nameOf(route), fields })));
  const codes = commonCodes(withBody);
  const sections = [
    `## Shared fields\n\n${sharedIntroduction}\n\n${describedFields(shared.fields)}`,
    ...endpoints.map((endpoint) => {
      const fields = references.get(endpoint) ?? fieldsOfEndpoint(endpoint, shared);
      return `## ${nameOf(endpoint.route)}\n\n${description(endpoint.route, fields, codes)}`;
    }),
    `## Endpoints without a body\n\n${listOf(withoutBody)}`,
    `## Errors\n\n${errors(routes, codes)}`,
  ];
  return `${[introduction, ...sections].join("\n\n")}\n`;
}

function nameOf({ method, path }: DescribedRoute): string {
  return `${method} ${path}`;
}

function bodyFields(route: DescribedRoute, document: ApiDocument): readonly Field[] {
  const item = document.paths?.[route.path]?.[route.method.toLowerCase() as "post"];
  const body = item?.requestBody !== undefined && "content" in item.requestBody ? item.requestBody.content : {};
  return fieldsOf(document, (Object.values(body)[0]?.schema ?? {}) as Schema);
}

/** Returns a reference to an earlier endpoint that has all these fields and at most MAX_EXCEPTIONS others; null if there is none. */
function reference({ fields }: Endpoint, earlier: readonly Endpoint[]): string | null {
  for (const { route, fields: others } of earlier) {
    const missing = missingFields(fields, others);
    if (missing === null || missing.length > MAX_EXCEPTIONS) continue;
    const except = missing.length === 0 ? "" : ` except ${missing.map(({ path }) => code(path)).join(", ")}`;
    return `Takes the fields of ${linkTo(nameOf(route))}${except}.`;
  }
  return null;
}

function fieldsOfEndpoint({ route, fields }: Endpoint, shared: SharedFields): string {
  const { shared: taken, earlier, own } = shared.split({ endpoint: nameOf(route), fields });
  return [
    ...(taken.length === 0
      ? []
      : [`[Shared fields](#shared-fields): ${bySupport(taken, (few) => runsOf(few, shared.fields))}.`]),
    ...[...earlier].map(([endpoint, others]) => `As in ${linkTo(endpoint)}: ${bySupport(others, namesOf)}.`),
    describedFields(own),
  ]
    .filter(Boolean)
    .join("\n\n");
}

/** Lists the supported fields with `list`, then the ignored and the refused ones. */
function bySupport(fields: readonly Field[], list: (fields: readonly Field[]) => string): string {
  const of = (support: Field["support"]) => fields.filter((field) => field.support === support);
  const supported = list(of("supported"));
  const unused = (["ignored", "refused"] as const).flatMap((support) => {
    const names = namesOf(of(support));
    return names === "" ? [] : [`${support}: ${names}`];
  });
  return [...(supported === "" ? [] : [supported]), ...unused].join("; ");
}

/** Lists shared fields. Of several rows that follow each other in the table of `all`, only the first and the last are named. */
function runsOf(fields: readonly Field[], all: readonly Field[]): string {
  const rows = all.filter(({ path, support }) => support === "supported" && !/[.[]/.test(path));
  if (fields.length === rows.length) return "all";
  const runs: Field[][] = [];
  for (const field of fields) {
    const last = runs.at(-1)?.at(-1);
    const at = rows.findIndex(({ path }) => path === field.path);
    if (last !== undefined && rows[at - 1]?.path === last.path && !field.isRequired) runs.at(-1)?.push(field);
    else runs.push([field]);
  }
  const shown = runs.map((run) =>
    run.length < MIN_RUN ? namesOf(run) : `${namesOf(run.slice(0, 1))} to ${namesOf(run.slice(-1))}`,
  );
  return shown.join(", ");
}

/** Returns a link to the section of an endpoint. */
function linkTo(endpoint: string): string {
  const anchor = endpoint
    .toLowerCase()
    .replaceAll(/[^a-z0-9 _-]/g, "")
    .replaceAll(" ", "-");
  return `[${endpoint}](#${anchor})`;
}

function description(route: DescribedRoute, fields: string, common: CommonCodes): string {
  const { operation } = route;
  return [
    `${operation.summary}.`,
    ...(operation.description === undefined ? [] : [operation.description]),
    fields,
    ...errorsOf(route, common),
  ].join("\n\n");
}

/** Returns the line with the error codes of an endpoint; common codes are named as groups. */
function errorsOf(route: DescribedRoute, { ofAny, ofModels }: CommonCodes): readonly string[] {
  const codes = codesOf(route).filter((name) => !ofAny.includes(name));
  const isOfModels = ofModels.every((name) => codes.includes(name));
  const own = codes.filter((name) => !(isOfModels && ofModels.includes(name)));
  const names = own.map((name) => code(route.errors?.nameOf?.(name) ?? name));
  const listed = [...(isOfModels ? ["those of models"] : []), ...names];
  return listed.length === 0 ? [] : [`[Errors](#errors): the common ones, ${listed.join(", ")}.`];
}

function listOf(routes: readonly DescribedRoute[]): string {
  const rows = routes.map(({ method, path, operation }) => [method, code(path), operation.summary]);
  return markdownTable(["method", "path", "description"], rows);
}

interface CommonCodes {
  /** Codes that every endpoint with a body may return. */
  readonly ofAny: readonly ErrorCode[];
  /** Further codes that every endpoint that runs a model may return. */
  readonly ofModels: readonly ErrorCode[];
}

function commonCodes(withBody: readonly DescribedRoute[]): CommonCodes {
  const of = (routes: readonly DescribedRoute[]) =>
    errorCodes.filter((name) => routes.every((route) => codesOf(route).includes(name)));
  const ofAny = of(withBody);
  const inference = withBody.filter(({ operation }) => operation.tag === "Inference");
  return { ofAny, ofModels: of(inference).filter((name) => !ofAny.includes(name)) };
}

function errors(routes: readonly DescribedRoute[], { ofAny, ofModels }: CommonCodes): string {
  const formats = [...new Set(routes.flatMap(({ errors: format }) => format ?? []))];
  const differences = formats.flatMap((format) => {
    const differing = errorCodes.flatMap((name) => difference(format, name) ?? []);
    const paths = routes.filter((route) => route.errors === format).map(({ path }) => code(path));
    return differing.length === 0 ? [] : [`- ${paths.join(", ")}: ${differing.join(", ")}.`];
  });
  const rows = errorCodes.map((name) => [
    code(name),
    String(commonErrors.statusOf(name)),
    saysWhenToRetry(name) ? "yes" : "",
    errorMeaning(name),
  ]);
  return [
    envelope,
    `Common to all endpoints with a body: ${ofAny.map(code).join(", ")}.`,
    `Errors of models: ${ofModels.map(code).join(", ")}.`,
    markdownTable(["code", "status", "retry-after", "meaning"], rows),
    "Endpoints with other statuses or names:",
    differences.join("\n"),
  ].join("\n\n");
}

/**
 * Describes the status and name that a protocol uses for an error code, for example "`invalid_json` is 400 `malformed_json`".
 * Returns null if the common error body uses the same status and name.
 */
function difference(format: ErrorFormat, name: ErrorCode): string | null {
  const shown = format.nameOf?.(name) ?? name;
  const status = format.statusOf(name);
  if (shown === name && status === commonErrors.statusOf(name)) return null;
  return `${code(name)} is ${status}${shown === name ? "" : ` ${code(shown)}`}`;
}

const envelope = `The body of a failed response is one envelope, and so is the last \`data\` of a stream that fails after its start. Some
protocols have their own shape instead; the API document has its schema.

\`\`\`json
{ "error": { "message": "…", "type": "invalid_request_error", "param": "temperature", "code": "invalid_value" } }
\`\`\``;
