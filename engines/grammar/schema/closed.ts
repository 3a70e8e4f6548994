// Owns closing the objects of a tool's schema: whoever names properties and says nothing of others wants those. What is
// generated still matches the schema as it was given, and the grammar engine is spared all other keys, which cost it most.
// For calls.ts. Pure.

/** As deep as a schema may be; a deeper one is refused when it is compiled. */
const maxDepth = 100;

/** With these anywhere, what one schema says of an object is said to another one's properties too. */
const joining = new Set("allOf not if dependentSchemas $dynamicRef unevaluatedProperties unevaluatedItems".split(" "));
/** Beside `properties`, these say more of the same object. */
const beside = "additionalProperties patternProperties propertyNames minProperties anyOf oneOf $ref".split(" ");
const maps = new Set(["properties", "$defs", "definitions"]);
const lists = new Set(["anyOf", "oneOf", "prefixItems"]);

type Members = Readonly<Record<string, unknown>>;

/** The schema, in which objects have no properties but those it names, where that can be said. */
export function closed(schema: unknown): unknown {
  return joins(schema, 0) ? schema : closedAt(schema, 0);
}

function joins(value: unknown, depth: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (depth > maxDepth) return true;
  return Object.entries(value).some(
    ([key, inner]) => (joining.has(key) && !Array.isArray(value)) || joins(inner, depth + 1),
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
