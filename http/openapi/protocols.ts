// Generator of docs/protocols.md: the fields of each endpoint, and the error codes with their statuses, from the API document
// and the error table. write-protocols.ts writes the file; a test fails if the file is out of date.
import { type ErrorCode, errorCodes, errorMeaning } from "../../runtime/errors.ts";
import { code, markdownTable } from "../../runtime/markdown-table.ts";
import { commonErrors, type ErrorFormat, saysWhenToRetry } from "../errors.ts";
import type { DescribedRoute } from "../route.ts";
import { codesOf } from "./answers.ts";
import { type ApiDocument, openApiDocument } from "./document.ts";
import { type Field, fieldsOf, type Schema } from "./fields.ts";
import { missingFields, SharedFields } from "./shared-fields.ts";

/** Maximum number of types and literal values listed for one field. */
const MAX_TYPES = 8;

const introduction = `# Protocols

<!-- Generated from the request schemas and the route table by \`npm run docs\`; edits are lost. -->

The request fields of each endpoint and the error codes. The full contract with all responses is the API document: a running
server shows it at \`/docs\` and serves it at \`/api-doc/openapi.json\`.

- \`a[].b\` is the field \`b\` of each element of the array \`a\`. Null in an optional field means the same as no field.
- _Ignored_ fields are accepted for compatibility and checked, but have no effect; the server logs the first use.
- _Refused_ fields and types are known, but answered with the error \`unsupported\`. Null and values that ask for nothing are
  accepted.
- Any other field is ignored and named in the response header \`x-ignored-fields\`. A misspelt name is answered with the error
  \`invalid_value\`, and so is any other field with \`unknown_fields = "refuse"\`.
- Of more than ${MAX_TYPES} literals the first are shown; the API document has all of them.`;

const sharedIntroduction =
  "Several endpoints take these fields with the same meaning; each endpoint lists the ones that it takes.";

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
  const inference = endpoints.filter(
    (endpoint) => endpoint.route.operation.tag === "Inference" && references.get(endpoint) === null,
  );
  const shared = new SharedFields(inference.map(({ fields }) => fields));
  const common = commonCodes(withBody);
  const sections = [
    `## Shared fields\n\n${sharedIntroduction}\n\n${fieldTable(shared.fields)}`,
    ...endpoints.map((endpoint) => {
      const fields = references.get(endpoint) ?? ownFields(endpoint, shared);
      return `## ${nameOf(endpoint.route)}\n\n${description(endpoint.route, fields, common)}`;
    }),
    `## Endpoints without a body\n\n${listOf(withoutBody)}`,
    `## Errors\n\n${errors(routes, common)}`,
  ];
  return `${[introduction, ...sections].join("\n\n")}\n`;
}

function nameOf({ method, path }: DescribedRoute): string {
  return `${method} ${path}`;
}

function bodyFields(route: DescribedRoute, document: ApiDocument): readonly Field[] {
  const item = document.paths?.[route.path]?.[route.method.toLowerCase() as "post"];
  const body = item?.requestBody !== undefined && "content" in item.requestBody ? item.requestBody.content : {};
  return fieldsOf(document, (body["application/json"]?.schema ?? {}) as Schema);
}

/** Returns a reference to an earlier endpoint that has all fields of this endpoint; null if there is none. */
function reference({ fields }: Endpoint, earlier: readonly Endpoint[]): string | null {
  for (const { route, fields: others } of earlier) {
    const missing = missingFields(fields, others);
    if (missing === null) continue;
    const except = missing.length === 0 ? "" : ` except ${missing.map(code).join(", ")}`;
    return `Takes the fields of ${code(nameOf(route))}${except}.`;
  }
  return null;
}

function ownFields({ fields }: Endpoint, shared: SharedFields): string {
  const { shared: names, own } = shared.split(fields);
  const others = `[Shared fields](#shared-fields): ${names.map(code).join(", ")}.`;
  return [fieldTable(own), ...(names.length === 0 ? [] : [others])].join("\n\n");
}

function description(route: DescribedRoute, fields: string, common: readonly ErrorCode[]): string {
  const { operation, errors: format } = route;
  const codes = codesOf(route).filter((name) => !common.includes(name));
  const names = codes.map((name) => code(format?.nameOf?.(name) ?? name));
  return [
    `${operation.summary}.`,
    ...(operation.description === undefined ? [] : [operation.description]),
    fields,
    ...(names.length === 0 ? [] : [`[Errors](#errors) beside the common ones: ${names.join(", ")}.`]),
  ].join("\n\n");
}

function fieldTable(fields: readonly Field[]): string {
  const rows = fields.map(({ path, types, isRequired, default: value, description: text }) => [
    code(path) + (isRequired ? " (required)" : ""),
    inWords(types),
    value === null ? "" : code(value),
    text.replaceAll(/\s*\n\s*/g, " "),
  ]);
  return markdownTable(["field", "type", "default", "description"], rows);
}

function inWords(types: readonly string[]): string {
  const separator = types.every((type) => type.startsWith("`")) ? ", " : " or ";
  const shown = types.length > MAX_TYPES ? types.slice(0, MAX_TYPES - 1) : types;
  const others = types.length - shown.length;
  return shown.join(separator) + (others === 0 ? "" : `${separator}${others} others`);
}

function listOf(routes: readonly DescribedRoute[]): string {
  const rows = routes.map(({ method, path, operation }) => [method, code(path), operation.summary]);
  return markdownTable(["method", "path", "description"], rows);
}

/** Returns the error codes that every endpoint with a body may return. */
function commonCodes(withBody: readonly DescribedRoute[]): readonly ErrorCode[] {
  return errorCodes.filter((name) => withBody.every((route) => codesOf(route).includes(name)));
}

function errors(routes: readonly DescribedRoute[], common: readonly ErrorCode[]): string {
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
    `Any endpoint with a body may answer with ${common.map(code).join(", ")}.`,
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
