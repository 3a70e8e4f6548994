// Ignored fields: logs that a request set a field without effect, once per field and process. The schemas' metadata states
// which known fields are ignored. Unknown fields also count as ignored.
import { z } from "zod";
import type { Log } from "../observe/log.ts";

type Schema = z.core.$ZodType;

/** Ignored field as plain data, because another thread may have parsed the body. */
export interface IgnoredField {
  readonly path: string;
  /** Description that contains the reason; null: the field is unknown. */
  readonly description: string | null;
}

/** Search function of a schema: calls `found` for each ignored field in a valid value. Built once per schema. */
type Search = (value: unknown, found: (field: IgnoredField) => void) => void;

const searches = new WeakMap<Schema, Search>();
/** Messages that have been logged, by logger, so that each is logged only once. */
const toldBy = new WeakMap<Log, Set<string>>();
/**
 * Maximum number of messages per logger. Further unknown fields are not logged, because clients can invent any number of names.
 * Known fields are logged nevertheless, because their number is fixed.
 */
const MAX_TOLD = 1000;
const MAX_HEADER_LENGTH = 1000;

/** Returns the ignored fields that a body sets. */
export function ignoredFields(schema: Schema, body: unknown): IgnoredField[] {
  const search = searches.get(schema) ?? searchOf(schema, "", []) ?? (() => {});
  searches.set(schema, search);
  const fields = new Map<string, IgnoredField>();
  search(body, (field) => fields.set(field.path, field));
  return [...fields.values()];
}

export function tellIgnored(fields: readonly IgnoredField[], log: Log): void {
  const told = toldBy.get(log) ?? new Set();
  toldBy.set(log, told);
  for (const { path, description } of fields) {
    const key = `${path} ${description}`;
    if (told.has(key) || (description === null && told.size >= MAX_TOLD)) continue;
    told.add(key);
    const why = description ?? 'Ignored: the server does not know it (unknown_fields = "refuse" refuses it)';
    log.warn({ field: path }, `a request sets a field without effect. ${why}`);
  }
}

/** Returns the paths of the unknown fields for a response header; null if there are none. */
export function unknownFieldList(fields: readonly IgnoredField[]): string | null {
  const names = fields.filter(({ description }) => description === null).map(({ path }) => printable(path));
  if (names.length === 0) return null;
  let list = "";
  for (const [i, name] of names.entries()) {
    if (list.length + name.length > MAX_HEADER_LENGTH) return `${list}${names.length - i} more`;
    list += i === names.length - 1 ? name : `${name}, `;
  }
  return list;
}

/** Replaces characters in a path that a header cannot contain, or that separate the paths in the list. */
function printable(path: string): string {
  return path.replaceAll(/[^\w.[\]$@:/-]/g, "?");
}

/**
 * Builds the search function of a schema; null if the schema has no ignored fields. `around`: enclosing schemas, with which the
 * recursion detects a schema that contains itself.
 */
function searchOf(schema: Schema, path: string, around: readonly Schema[]): Search | null {
  const meta = z.globalRegistry.get(schema);
  if (meta?.support === "ignored") {
    const field = { path, description: meta.description ?? "" };
    return (value, found) => {
      if (value !== undefined && value !== null) found(field);
    };
  }
  if (around.includes(schema)) return null;
  const inside = [...around, schema];
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable)
    return searchOf(schema.unwrap(), path, inside);
  if (schema instanceof z.ZodPipe) return searchOf(schema.in, path, inside);
  if (schema instanceof z.ZodObject) return searchOfObject(schema, path, inside);
  if (schema instanceof z.ZodArray) return searchOfArray(schema, path, inside);
  if (schema instanceof z.ZodDiscriminatedUnion) return searchOfVariants(schema, path, inside);
  return schema instanceof z.ZodUnion ? searchOfUnion(schema, path, inside) : null;
}

function searchOfObject({ shape }: z.ZodObject, path: string, inside: readonly Schema[]): Search | null {
  const fields = Object.entries(shape).flatMap(([key, schema]) => {
    const search = searchOf(schema, path === "" ? key : `${path}.${key}`, inside);
    return search === null ? [] : [[key, search] as const];
  });
  if (fields.length === 0) return null;
  return (value, found) => {
    if (isRecord(value)) for (const [key, search] of fields) search(value[key], found);
  };
}

function searchOfArray({ element }: z.ZodArray, path: string, inside: readonly Schema[]): Search | null {
  const search = searchOf(element, `${path}[]`, inside);
  if (search === null) return null;
  return (value, found) => {
    if (Array.isArray(value)) for (const item of value) search(item, found);
  };
}

/** Builds a search function for a union. It searches only in the variant that the value has. */
function searchOfVariants(union: z.ZodDiscriminatedUnion, path: string, inside: readonly Schema[]): Search | null {
  const { discriminator } = union.def;
  const byTag = new Map<unknown, Search>();
  for (const option of union.options) {
    const search = searchOf(option, path, inside);
    if (search === null) continue;
    for (const tag of option._zod.propValues?.[discriminator] ?? []) byTag.set(tag, search);
  }
  if (byTag.size === 0) return null;
  return (value, found) => {
    if (isRecord(value)) byTag.get(value[discriminator])?.(value, found);
  };
}

function searchOfUnion({ options }: z.ZodUnion, path: string, inside: readonly Schema[]): Search | null {
  const all = options.flatMap((option) => searchOf(option, path, inside) ?? []);
  if (all.length === 0) return null;
  return (value, found) => {
    for (const search of all) search(value, found);
  };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
