// Typed value: converts an argument written as bare text to JSON, by the types that the tool's schema allows.

const maxDepth = 8;
/** Python literals and their JSON values, because some templates print Python literals. */
const pythonWords = new Map([
  ["True", "true"],
  ["False", "false"],
  ["None", "null"],
]);

/** Returns the JSON types that a tool's schema allows for an argument; null if the schema does not state them. */
export function parameterTypes(parameters: unknown, key: string): ReadonlySet<string> | null {
  const properties = member(parameters, "properties");
  const types = new Set<string>();
  const search = { root: parameters, types, followed: new Set<string>() };
  return collectTypes(member(properties, key), search, 0) && types.size > 0 ? types : null;
}

export function mayOnlyBeString(types: ReadonlySet<string> | null): boolean {
  return types !== null && types.size === 1 && types.has("string");
}

/**
 * Returns `text` as JSON. If the trimmed text is JSON of an allowed type, returns the trimmed text, with a Python
 * literal converted to JSON. Otherwise, returns `text` as a JSON string.
 */
export function jsonTyped(text: string, types: ReadonlySet<string> | null): string {
  const trimmed = text.trim();
  const literal = types === null ? trimmed : (pythonWords.get(trimmed) ?? trimmed);
  let value: unknown;
  try {
    value = JSON.parse(literal);
  } catch {
    return JSON.stringify(text);
  }
  const isString = types?.has("string") === true && !types.has(typeName(value));
  return isString ? JSON.stringify(text) : literal;
}

interface TypeSearch {
  /** The tool's schema, into which references point. */
  readonly root: unknown;
  /** Types found so far. */
  readonly types: Set<string>;
  /** References that were followed. Each is followed once, so that the time is linear in the size of the schema. */
  readonly followed: Set<string>;
}

/**
 * Adds the types that the schema allows to the types found. Returns false if the schema states no types in
 * a form that is supported here.
 */
function collectTypes(schema: unknown, search: TypeSearch, depth: number): boolean {
  if (depth > maxDepth) return false;
  const { root, types, followed } = search;
  const reference = member(schema, "$ref");
  if (typeof reference === "string") {
    if (followed.has(reference)) return true;
    followed.add(reference);
    return collectTypes(atPointer(root, reference), search, depth + 1);
  }
  const type = member(schema, "type");
  if (typeof type === "string" || Array.isArray(type)) {
    for (const name of [type].flat()) types.add(name === "integer" ? "number" : String(name));
    return true;
  }
  const values = member(schema, "enum") ?? (hasMember(schema, "const") ? [member(schema, "const")] : undefined);
  if (Array.isArray(values)) {
    for (const value of values) types.add(typeName(value));
    return true;
  }
  const choices = member(schema, "anyOf") ?? member(schema, "oneOf");
  return Array.isArray(choices) && choices.every((choice) => collectTypes(choice, search, depth + 1));
}

/** Returns the part of the schema to which a reference such as "#/$defs/Colour" points; undefined if there is none. */
function atPointer(root: unknown, reference: string): unknown {
  if (!reference.startsWith("#/")) return undefined;
  const keys = reference.slice(2).split("/");
  return keys.reduce((value, key) => member(value, key.replaceAll("~1", "/").replaceAll("~0", "~")), root);
}

function typeName(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

function hasMember(value: unknown, key: string): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && Object.hasOwn(value, key);
}

function member(value: unknown, key: string): unknown {
  return hasMember(value, key) ? value[key] : undefined;
}
