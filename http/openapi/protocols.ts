// Owns docs/protocols.md: each endpoint's fields with what becomes of them, and the error codes with their statuses. Made
// from the API document and the error table; called by write-protocols.ts and by the test that says when the file is behind.
import { type ErrorCode, errorCodes, errorMeaning } from "../../runtime/errors.ts";
import { code, markdownTable } from "../../runtime/markdown-table.ts";
import { commonErrors, type ErrorFormat, saysWhenToRetry } from "../errors.ts";
import type { DescribedRoute } from "../route.ts";
import { codesOf } from "./answers.ts";
import { type ApiDocument, openApiDocument } from "./document.ts";
import { type Field, fieldsOf, type Schema } from "./fields.ts";

const introduction = `# Protocols

<!-- Made from the request schemas and the route table by \`npm run docs\`; changes made here are lost. -->

What each endpoint takes, and what becomes of it. The whole description, answers included, is the API document: a running
server shows it at \`/docs\`, and gives it as it is at \`/api-doc/openapi.json\`.

- _supported_: does what its protocol says.
- _ignored_: taken for the sake of clients that send it, checked, and without effect; the log says so once.
- _refused_: known, and answered with the error \`unsupported\` that names it, never passed over in silence. Null, and a value
  that asks for nothing, are taken.
- A field that is in no table is refused with \`invalid_value\`.`;

/** The whole text of docs/protocols.md. */
export function renderProtocols(routes: readonly DescribedRoute[]): string {
  const document = openApiDocument(routes);
  const withBody = routes.filter(({ operation }) => operation.body !== undefined);
  const others = routes.filter(({ operation }) => operation.body === undefined);
  const sections = [
    ...withBody.map((route) => `## ${route.method} ${route.path}\n\n${endpoint(route, document)}`),
    `## Endpoints that take no body\n\n${listOf(others)}`,
    `## Errors\n\n${errors(routes)}`,
  ];
  return `${[introduction, ...sections].join("\n\n")}\n`;
}

function endpoint(route: DescribedRoute, document: ApiDocument): string {
  const { operation } = route;
  const item = document.paths?.[route.path]?.[route.method.toLowerCase() as "post"];
  const body = item?.requestBody !== undefined && "content" in item.requestBody ? item.requestBody.content : {};
  const fields = fieldsOf(document, (body["application/json"]?.schema ?? {}) as Schema);
  const paragraphs = [
    `${operation.summary}.`,
    ...(operation.description === undefined ? [] : [operation.description]),
    fields.length === 0 ? "Its body has no fields." : fieldTable(fields),
    `Errors: ${codesOf(route)
      .map((name) => code(route.errors?.nameOf?.(name) ?? name))
      .join(", ")}.`,
  ];
  return paragraphs.join("\n\n");
}

function fieldTable(fields: readonly Field[]): string {
  const rows = fields.map(({ path, types, isRequired, support, description }) => [
    code(path) + (isRequired ? " (required)" : ""),
    support === "refused" && types[0] === "any" ? "" : inWords(types),
    support,
    // The column before has said it.
    description.replace(/^(?:Ignored|Refused): /, "").replaceAll(/\s*\n\s*/g, " "),
  ]);
  return markdownTable(["field", "type", "", "what it is"], rows);
}

function inWords(types: readonly string[]): string {
  return types.join(types.every((type) => type.startsWith("`")) ? ", " : " or ");
}

function listOf(routes: readonly DescribedRoute[]): string {
  const rows = routes.map(({ method, path, operation }) => [method, code(path), operation.summary]);
  return markdownTable(["method", "path", "what it is"], rows);
}

function errors(routes: readonly DescribedRoute[]): string {
  const formats = new Set(routes.flatMap(({ errors: format }) => format ?? []));
  const others = [...formats].filter(({ statusOf }) => statusOf !== commonErrors.statusOf);
  const columns = others.map((format) => ({
    format,
    paths: routes.filter((route) => route.errors === format).map(({ path }) => code(path)),
  }));
  const header = [
    "code",
    "status",
    ...columns.map(({ paths }) => `of ${paths.join(", ")}`),
    "retry-after",
    "what it means",
  ];
  const rows = errorCodes.map((name) => [
    code(name),
    String(commonErrors.statusOf(name)),
    ...columns.map(({ format }) => statusIn(format, name)),
    saysWhenToRetry(name) ? "yes" : "",
    errorMeaning(name),
  ]);
  return `${envelope}\n\n${markdownTable(header, rows)}`;
}

/** With the name it has there, where that is another. */
function statusIn(format: ErrorFormat, name: ErrorCode): string {
  const shown = format.nameOf?.(name) ?? name;
  const status = String(format.statusOf(name));
  return shown === name ? status : `${status} ${code(shown)}`;
}

const envelope = `The body of an answer that failed is one envelope, and so is the last \`data\` of a stream that failed after it had
begun. Protocols whose clients know another shape have that instead: the API document has the schema of each.

\`\`\`json
{ "error": { "message": "…", "type": "invalid_request_error", "param": "temperature", "code": "invalid_value" } }
\`\`\``;
