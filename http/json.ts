// Owns the way from a body's bytes to a value of a schema: content type, UTF-8, JSON, fields. Each failure is a
// ServerError that names the field, what was expected and what came.
import { z } from "zod";
import { ServerError } from "../runtime/errors.ts";
import type { HttpRequest } from "./edge.ts";
import { dropIgnored, tellIgnored } from "./ignored.ts";
import { describeIssue, expectation } from "./issues.ts";
import type { Log } from "./log.ts";

const COMMA = 0x2c;
const LIST = 0x5b;
const OBJECT = 0x7b;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

const decoder = new TextDecoder("utf-8", { fatal: true });
const jsonType = /^application\/(?:json|[\w.-]+\+json)$/i;
const utf8 = /^charset="?utf-?8"?$/i;
/** A longer content type is none that anybody sends. */
const MAX_TYPE_LENGTH = 200;

/**
 * Most values in one body. A body may be 50 MB of one long text, but 50 MB of `[0,0,…` or `[[[[…` would hold this thread
 * for many seconds and fill the heap with values, and with one complaint a value.
 */
const MAX_VALUES = 200_000;

/** What a smaller body comes to is not counted once it is parsed. */
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

/** Has `namedModel` know a request that is refused before anything reads its body. */
export function noteModel(request: HttpRequest): void {
  try {
    readJsonValue(request);
  } catch {
    // It names none.
  }
}

/**
 * The body of a request as a value of `schema`. Which of its fields change nothing is told to `log`, and they are left out, but
 * those that are `shown` in the answer.
 */
export function readJson<Schema extends z.ZodObject>(
  request: HttpRequest,
  schema: Schema,
  log: Log,
  shown: readonly (keyof Schema["shape"] & string)[] = [],
): z.output<Schema> {
  const body = validate(schema, parseBody(request));
  tellIgnored(schema, body, log);
  dropIgnored(schema, body, shown);
  release(request, body);
  return body;
}

/** The body of a request as whatever it holds. Its bytes are let go. */
export function readJsonValue(request: HttpRequest): unknown {
  const value = parseBody(request);
  release(request, value);
  return value;
}

/** Lets the bytes go. Of a large body, the texts in what was made of it are held on, and stay counted. */
function release(request: HttpRequest, value: unknown): void {
  request.releaseBody(request.bodyBytes > SMALL_BODY_BYTES ? textLength(value) : 0);
}

/** Characters of all texts in a value. */
function textLength(value: unknown): number {
  let length = 0;
  const open: unknown[] = [value];
  while (open.length > 0) {
    const next = open.pop();
    if (typeof next === "string") length += next.length;
    else if (typeof next === "object" && next !== null) for (const inner of Object.values(next)) open.push(inner);
  }
  return length;
}

function parseBody(request: HttpRequest): unknown {
  const contentType = request.headers.get("content-type");
  if (contentType === undefined || !isJson(contentType)) {
    const got = contentType === undefined ? "none" : JSON.stringify(contentType.slice(0, 100));
    throw new ServerError("invalid_content_type", `expected content-type application/json in UTF-8, got ${got}`);
  }
  const value = parseJson(request.body);
  const { model, model_id } = (value ?? {}) as NamedModels;
  namedModels.set(request, { model, model_id });
  return value;
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

function parseJson(body: Uint8Array): unknown {
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

function validate<Schema extends z.ZodObject>(schema: Schema, body: unknown): z.output<Schema> {
  const result = z.safeParse(schema, body, { error: expectation });
  if (result.success) return result.data;
  throw describeIssue(result.error.issues, Object.keys(schema.shape));
}
