// JSON bodies: checks content type, UTF-8, JSON and schema. Each failure is a ServerError that names the field, what was
// expected and what was received. The bodies of inference requests may be long; read-request.ts reads them.
import type { z } from "zod";
import { ServerError } from "../runtime/errors.ts";
import { describeIssue, parsed } from "./issues.ts";
import type { Log } from "./observe/log.ts";
import type { HttpRequest } from "./server/edge.ts";
import { ignoredFields, tellIgnored } from "./shared/ignored.ts";

const COMMA = 0x2c;
const LIST = 0x5b;
const LIST_END = 0x5d;
const OBJECT = 0x7b;
const OBJECT_END = 0x7d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

const decoder = new TextDecoder("utf-8", { fatal: true });
const jsonType = /^application\/(?:json|[\w.-]+\+json)$/i;
const utf8 = /^charset="?utf-?8"?$/i;
/** Maximum length of a content type. A longer content type is rejected without parsing. */
const MAX_TYPE_LENGTH = 200;

/**
 * Maximum number of JSON values in one body. A 50 MB body with a single long string is harmless. But 50 MB of `[0,0,…` or
 * `[[[[…` would block this thread for many seconds and fill the heap with values and validation issues.
 */
const MAX_VALUES = 200_000;

/**
 * Maximum nesting of a body. JSON.stringify and messages between threads overflow the stack at a few thousand levels, and ignored fields
 * may contain any value.
 */
const MAX_DEPTH = 1000;

/**
 * Maximum bytes of a body parsed on the main thread. A longer body takes over a millisecond to parse, so a text worker parses
 * it.
 */
export const MAX_BODY_READ_HERE = 64 * 1024;

/**
 * Maximum bytes of a small body. After parsing, a small body no longer counts in the body budget (the memory limit of all
 * bodies). A longer body counts until the response ends.
 */
const SMALL_BODY_BYTES = 256 * 1024;

/** Body fields that may contain a model name. */
type ModelField = "model" | "model_id";
type NamedModels = Readonly<Partial<Record<ModelField, unknown>>>;

/** Values of the body's model fields, by request. */
const namedModels = new WeakMap<HttpRequest, NamedModels>();

/**
 * Returns the model name in a body; `name` is undefined if the body has none. Returns null if the body was not parsed as JSON.
 */
export function namedModel(request: HttpRequest, field: ModelField = "model"): { readonly name: unknown } | null {
  const named = namedModels.get(request);
  return named === undefined ? null : { name: named[field] };
}

/** Records the model name in a short body for `namedModel`. Used for requests that are rejected before their body is parsed. */
export function noteModel(request: HttpRequest): void {
  if (request.body.byteLength > MAX_BODY_READ_HERE) return;
  try {
    readJsonValue(request);
  } catch {
    // The body is not JSON, so it names no model.
  }
}

/** Records the model name in a body that another thread parsed, so that `namedModel` returns it. */
export function nameModel(request: HttpRequest, model: unknown): void {
  namedModels.set(request, { model });
}

/** Parses a request body and validates it against `schema`. Logs ignored fields. */
export function readJson<Schema extends z.ZodObject>(
  request: HttpRequest,
  schema: Schema,
  log: Log,
  limits: BodyLimits = {},
): z.output<Schema> {
  const body = validate(schema, readJsonValue(request, limits));
  tellIgnored(ignoredFields(schema, body), log);
  return body;
}

interface BodyLimits {
  readonly limitBytes?: number;
  /** Maximum nesting. Infinity for a route that checks it itself. */
  readonly limitDepth?: number;
  /** Whether requests may omit the JSON content type; see DescribedRoute.takesUntyped. */
  readonly takesUntyped?: boolean | undefined;
}

/** Parses a request body as JSON and releases its bytes. Limited to `limitBytes`, because parsing blocks this thread. */
export function readJsonValue(
  request: HttpRequest,
  { limitBytes = MAX_BODY_READ_HERE, limitDepth = MAX_DEPTH, takesUntyped = false }: BodyLimits = {},
): unknown {
  checkContentType(request, takesUntyped);
  const { byteLength } = request.body;
  if (byteLength > limitBytes) {
    throw new ServerError("body_too_large", `expected a body of at most ${limitBytes} bytes here, got ${byteLength}`);
  }
  const value = parseJson(request.body, limitDepth);
  const { model, model_id } = (value ?? {}) as NamedModels;
  namedModels.set(request, { model, model_id });
  request.releaseBody(byteLength > SMALL_BODY_BYTES ? byteLength : 0);
  return value;
}

/**
 * Throws `invalid_content_type` if the body is not declared as JSON. `takesUntyped`: any content type is accepted from requests
 * without an Origin header. Web pages always need the JSON type, because browsers send some other types without a CORS
 * preflight.
 */
export function checkContentType({ headers }: HttpRequest, takesUntyped = false): void {
  const contentType = headers.get("content-type");
  if (contentType !== undefined && isJson(contentType)) return;
  if (takesUntyped && !headers.has("origin")) return;
  const got = contentType === undefined ? "none" : JSON.stringify(contentType.slice(0, 100));
  throw new ServerError("invalid_content_type", `expected content-type application/json in UTF-8, got ${got}`);
}

/** Checks whether a content type is application/json or has the suffix +json. The only allowed parameter is the charset UTF-8. */
function isJson(contentType: string): boolean {
  if (contentType === "application/json") return true;
  if (contentType.length > MAX_TYPE_LENGTH) return false;
  const parts = contentType.split(";").map((part) => part.trim());
  if (parts.length > 1 && parts.at(-1) === "") parts.pop();
  const [type = "", charset, ...more] = parts;
  return jsonType.test(type) && (charset === undefined || utf8.test(charset)) && more.length === 0;
}

/** Parses JSON. Throws `invalid_json`, or `invalid_value` if there are too many values, or values nested too deeply. */
export function parseJson(body: Uint8Array, limitDepth = MAX_DEPTH): unknown {
  if (body.byteLength === 0) throw new ServerError("invalid_json", "expected a JSON object, got an empty body");
  if (body.byteLength > MAX_DEPTH) checkSize(body, limitDepth);
  try {
    return JSON.parse(decoder.decode(body));
  } catch (error) {
    const reason = error instanceof SyntaxError ? error.message : "it is not UTF-8";
    throw new ServerError("invalid_json", `the body is not JSON: ${reason}`);
  }
}

/**
 * Throws `invalid_value` if a body has too many values, or values nested too deeply. The number of values is an upper bound: the number
 * of commas and opening brackets.
 */
function checkSize(body: Uint8Array, limitDepth: number): void {
  let count = 1;
  let depth = 0;
  let deepest = 0;
  for (let i = 0; i < body.length && count <= MAX_VALUES; i++) {
    const byte = body[i];
    if (byte === QUOTE) i = closingQuote(body, i + 1);
    else if (byte === COMMA) count++;
    else if (byte === LIST || byte === OBJECT) {
      count++;
      deepest = Math.max(deepest, ++depth);
    } else if (byte === LIST_END || byte === OBJECT_END) depth--;
  }
  if (count > MAX_VALUES) {
    throw new ServerError("invalid_value", `expected a body of at most ${MAX_VALUES} values, got more`);
  }
  if (deepest > limitDepth) {
    throw new ServerError("invalid_value", `expected a body nested at most ${limitDepth} deep, got ${deepest} levels`);
  }
}

/** Returns the index of the quote that closes the string starting at `from`; the length of the body if there is none. */
function closingQuote(body: Uint8Array, from: number): number {
  let at = body.indexOf(QUOTE, from);
  while (at >= 0 && isEscaped(body, at)) at = body.indexOf(QUOTE, at + 1);
  return at < 0 ? body.length : at;
}

/** Returns whether an odd number of backslashes precedes the position `at`. */
function isEscaped(body: Uint8Array, at: number): boolean {
  let before = at - 1;
  while (body[before] === BACKSLASH) before--;
  return (at - before) % 2 === 0;
}

/** Validates a body against a schema that rejects unknown fields. Throws `invalid_value` with the name of the invalid field. */
export function validate<Schema extends z.ZodObject>(schema: Schema, body: unknown): z.output<Schema> {
  const result = parsed(schema, body);
  if (result.success) return result.data;
  throw describeIssue(result.error.issues);
}
