// From a body's bytes to a value of a schema: content type, UTF-8, JSON, fields. Each failure is a ServerError that names the
// field, what was expected and what came. Requests for inference, whose bodies may be long, are read by read-request.ts.
import { z } from "zod";
import { ServerError } from "../runtime/errors.ts";
import { describeIssue, expectation } from "./issues.ts";
import type { Log } from "./observe/log.ts";
import type { HttpRequest } from "./server/edge.ts";
import { ignoredFields, tellIgnored } from "./shared/ignored.ts";

const COMMA = 0x2c;
const LIST = 0x5b;
const OBJECT = 0x7b;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

const decoder = new TextDecoder("utf-8", { fatal: true });
const jsonType = /^application\/(?:json|[\w.-]+\+json)$/i;
const utf8 = /^charset="?utf-?8"?$/i;
/** A longer content type is refused without being parsed. */
const MAX_TYPE_LENGTH = 200;

/**
 * Most values in one body. A body may be 50 MB of one long text, but 50 MB of `[0,0,…` or `[[[[…` would hold this thread
 * for many seconds and fill the heap with values, and with one complaint a value.
 */
const MAX_VALUES = 200_000;

/** Longest body that is read on the front; a longer one takes a millisecond and more, and is read on a text worker. */
export const MAX_BODY_READ_HERE = 64 * 1024;

/** What is made of a longer body stays counted until its request is answered. */
const SMALL_BODY_BYTES = 256 * 1024;

/** What a body may name a model in. */
type ModelField = "model" | "model_id";
type NamedModels = Readonly<Partial<Record<ModelField, unknown>>>;

/** Of requests whose bodies are JSON: what those name as their model. */
const namedModels = new WeakMap<HttpRequest, NamedModels>();

/** The model that a request's body names, undefined where it names none; null where the body was not read as JSON. */
export function namedModel(request: HttpRequest, field: ModelField = "model"): { readonly name: unknown } | null {
  const named = namedModels.get(request);
  return named === undefined ? null : { name: named[field] };
}

/** Notes the model that the body names, for `namedModel`, of a request that is refused before its body is read. Short bodies only. */
export function noteModel(request: HttpRequest): void {
  if (request.body.byteLength > MAX_BODY_READ_HERE) return;
  try {
    readJsonValue(request);
  } catch {
    // It names none.
  }
}

/** Notes the model, for `namedModel`, of a request whose body was read on another thread. */
export function nameModel(request: HttpRequest, model: unknown): void {
  namedModels.set(request, { model });
}

/** The body of a request as a value of `schema`. Which of its fields change nothing is told to `log`. */
export function readJson<Schema extends z.ZodObject>(request: HttpRequest, schema: Schema, log: Log): z.output<Schema> {
  const body = validate(schema, readJsonValue(request));
  tellIgnored(ignoredFields(schema, body), log);
  return body;
}

/**
 * The body of a request as whatever it holds; of at most `limitBytes`, since this thread stands still meanwhile. The bytes are
 * let go.
 */
export function readJsonValue(request: HttpRequest, limitBytes = MAX_BODY_READ_HERE): unknown {
  checkContentType(request);
  const { byteLength } = request.body;
  if (byteLength > limitBytes) {
    throw new ServerError("body_too_large", `expected a body of at most ${limitBytes} bytes here, got ${byteLength}`);
  }
  const value = parseJson(request.body);
  const { model, model_id } = (value ?? {}) as NamedModels;
  namedModels.set(request, { model, model_id });
  request.releaseBody(byteLength > SMALL_BODY_BYTES ? byteLength : 0);
  return value;
}

/** Throws `invalid_content_type`. */
export function checkContentType({ headers }: HttpRequest): void {
  const contentType = headers.get("content-type");
  if (contentType !== undefined && isJson(contentType)) return;
  const got = contentType === undefined ? "none" : JSON.stringify(contentType.slice(0, 100));
  throw new ServerError("invalid_content_type", `expected content-type application/json in UTF-8, got ${got}`);
}

/** JSON's own type or one that is made of it, with no parameter but UTF-8 as its charset. */
function isJson(contentType: string): boolean {
  if (contentType === "application/json") return true;
  if (contentType.length > MAX_TYPE_LENGTH) return false;
  const parts = contentType.split(";").map((part) => part.trim());
  if (parts.length > 1 && parts.at(-1) === "") parts.pop();
  const [type = "", charset, ...more] = parts;
  return jsonType.test(type) && (charset === undefined || utf8.test(charset)) && more.length === 0;
}

/** Throws invalid_json, and invalid_value for too many values. */
export function parseJson(body: Uint8Array): unknown {
  if (body.byteLength === 0) throw new ServerError("invalid_json", "expected a JSON object, got an empty body");
  if (body.byteLength > MAX_VALUES && valueCount(body) > MAX_VALUES) {
    throw new ServerError("invalid_value", `expected a body of at most ${MAX_VALUES} values, got more`);
  }
  try {
    return JSON.parse(decoder.decode(body));
  } catch (error) {
    const reason = error instanceof SyntaxError ? error.message : "it is not UTF-8";
    throw new ServerError("invalid_json", `the body is not JSON: ${reason}`);
  }
}

/** At least the values there are: one follows each comma, and each bracket that opens. Stops above the limit. */
function valueCount(body: Uint8Array): number {
  let count = 1;
  for (let i = 0; i < body.length && count <= MAX_VALUES; i++) {
    const byte = body[i];
    if (byte === COMMA || byte === LIST || byte === OBJECT) count++;
    else if (byte === QUOTE) i = closingQuote(body, i + 1);
  }
  return count;
}

/** Index of the quote that ends the string which begins at `from`; the body's end if none does. */
function closingQuote(body: Uint8Array, from: number): number {
  let at = body.indexOf(QUOTE, from);
  while (at >= 0 && isEscaped(body, at)) at = body.indexOf(QUOTE, at + 1);
  return at < 0 ? body.length : at;
}

/** An odd number of backslashes stands before it. */
function isEscaped(body: Uint8Array, at: number): boolean {
  let before = at - 1;
  while (body[before] === BACKSLASH) before--;
  return (at - before) % 2 === 0;
}

/** Throws invalid_value naming the field at fault. */
export function validate<Schema extends z.ZodObject>(schema: Schema, body: unknown): z.output<Schema> {
  const result = z.safeParse(schema, body, { error: expectation });
  if (result.success) return result.data;
  throw describeIssue(result.error.issues, Object.keys(schema.shape));
}
