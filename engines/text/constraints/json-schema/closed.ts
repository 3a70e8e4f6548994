// Closed tool schemas: adds `additionalProperties: false` to objects whose schema lists properties and has no keyword
// for other properties. Text generated from the closed schema still matches the original schema. Closing saves engine
// time, because unlisted keys are the most expensive part of a grammar. Called by calls.ts. No side effects.

/** Maximum depth of a schema. The compiler rejects a deeper one. */
const maxDepth = 100;

/**
 * Keywords that apply several schemas to one value. A schema with one of these keywords is not closed (does not get
 * `additionalProperties: false`), because a property may be named in only one of the applied schemas.
 */
const joining = new Set(
  (
    "allOf not if dependentSchemas dependencies contains patternProperties $dynamicRef unevaluatedProperties " +
    "unevaluatedItems"
  ).split(" "),
);
/**
 * Keywords that each apply one more schema to a value. If a schema has two of these keywords, or one of them and a
 * keyword of `ofParts`, several schemas apply to the same value.
 */
const alternatives = ["anyOf", "oneOf", "$ref", "enum", "const"];
const ofParts =
  "properties required additionalProperties propertyNames minProperties dependentRequired items prefixItems".split(" ");
/**
 * Keywords whose presence keeps `additionalProperties: false` from being added to an object schema, because they apply
 * to properties that `properties` does not list.
 */
const beside = "additionalProperties propertyNames minProperties dependentRequired".split(" ");
const maps = new Set(["properties", "$defs", "definitions"]);
/**
 * Keywords with lists of schemas that are closed (get `additionalProperties: false`) too. `oneOf` is excluded: an
 * object that matches two of its schemas is invalid, but it might match exactly one of the closed schemas.
 */
const lists = new Set(["anyOf", "prefixItems"]);

type Members = Readonly<Record<string, unknown>>;

/** Returns the schema with `additionalProperties: false` in every object schema that can be closed. */
export function closed(schema: unknown): unknown {
  return joins(schema, 0, false) ? schema : closedAt(schema, 0);
}

/**
 * True if `value`, a part of the schema, or a part inside it applies several schemas to the same data. `isOneOf`:
 * `value` is inside `oneOf`, where a $ref also counts, because the schema that it references must not be closed.
 */
function joins(value: unknown, depth: number, isOneOf: boolean): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (depth > maxDepth) return true;
  if (isMembers(value)) {
    const ways = alternatives.filter((key) => Object.hasOwn(value, key)).length;
    const hasParts = ofParts.some((key) => Object.hasOwn(value, key));
    if (ways > 1 || (ways === 1 && hasParts) || (isOneOf && Object.hasOwn(value, "$ref"))) return true;
  }
  return Object.entries(value).some(
    ([key, inner]) =>
      (joining.has(key) && !Array.isArray(value)) || joins(inner, depth + 1, isOneOf || key === "oneOf"),
  );
}

function closedAt(schema: unknown, depth: number): unknown {
  if (!isMembers(schema)) return schema;
  const inner = Object.entries(schema).map(([key, value]) => [key, closedKeyword(key, value, depth + 1)]);
  const all: Members = Object.fromEntries(inner);
  return canClose(all) ? { ...all, additionalProperties: false } : all;
}

function closedKeyword(key: string, value: unknown, depth: number): unknown {
  if (key === "items" || key === "additionalProperties") return closedAt(value, depth);
  if (lists.has(key) && Array.isArray(value)) return value.map((schema) => closedAt(schema, depth + 1));
  if (!maps.has(key) || !isMembers(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, schema]) => [name, closedAt(schema, depth + 1)]));
}

function canClose(schema: Members): boolean {
  const { properties, required } = schema;
  if (!isMembers(properties) || beside.some((key) => Object.hasOwn(schema, key))) return false;
  return !Array.isArray(required) || required.every((name) => Object.hasOwn(properties, name));
}

function isMembers(value: unknown): value is Members {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
