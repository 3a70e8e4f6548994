// Owns closing the objects of a tool's schema: whoever names properties and says nothing of others wants those. What is
// generated still matches the schema as it was given, and the grammar engine is spared all other keys, which cost it most.
// For calls.ts. Pure.

/** As deep as a schema may be; a deeper one is refused when it is compiled. */
const maxDepth = 100;

/** With these anywhere, several schemas are of one value, and what one of them names the others would not have. */
const joining = new Set(
  (
    "allOf not if dependentSchemas dependencies contains patternProperties $dynamicRef unevaluatedProperties " +
    "unevaluatedItems"
  ).split(" "),
);
/** Each of these says more of the same value: they join where they are beside each other or beside what is of its parts. */
const alternatives = ["anyOf", "oneOf", "$ref", "enum", "const"];
const ofParts =
  "properties required additionalProperties propertyNames minProperties dependentRequired items prefixItems".split(" ");
/** Beside `properties`, these say more of the same object. */
const beside = "additionalProperties propertyNames minProperties dependentRequired".split(" ");
const maps = new Set(["properties", "$defs", "definitions"]);
/** Not `oneOf`: closed, two of its schemas that an object matches could become one. */
const lists = new Set(["anyOf", "prefixItems"]);

type Members = Readonly<Record<string, unknown>>;

/** The schema, in which objects have no properties but those it names, where that can be said. */
export function closed(schema: unknown): unknown {
  return joins(schema, 0, false) ? schema : closedAt(schema, 0);
}

/** `isOneOf`: what is referred to from there must stay as it is, like what stands there. */
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
