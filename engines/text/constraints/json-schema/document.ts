// Schema document: the subschemas of a JSON schema by JSON pointer, typed access to their keywords, and the targets of
// references. Errors name the keyword and the pointer. Nothing is fetched, so a reference must point into the document.
import { type ErrorCode, ServerError } from "../../../../runtime/errors.ts";
import { spend, spendOn } from "../../../../runtime/regex/work.ts";
import { Patterns } from "./patterns.ts";

const maxBytes = 262_144;
const maxDepth = 100;
const maxValues = 50_000;
const defaultBase = "schema:///root";
/** Maximum length in characters of the URI of a part of the document. */
const maxUri = 2048;

/** Creates an error for a keyword: `JSON schema, /properties/a/minLength: …`. */
export function schemaError(
  code: ErrorCode & ("invalid_value" | "unsupported"),
  pointer: string,
  message: string,
): ServerError {
  const shown = pointer.length > 200 ? `…${pointer.slice(-200)}` : pointer;
  return new ServerError(code, `JSON schema, ${shown === "" ? "at its root" : shown}: ${message}`);
}

/** A position in the document. Its pointer is built only for errors, because it can be as long as the document. */
class Place {
  readonly #outer: Place | null;
  readonly #key: string;
  readonly #inner = new Map<string, Place>();
  node: SchemaNode | null = null;

  constructor(outer: Place | null, key: string) {
    this.#outer = outer;
    this.#key = key;
  }

  at(key: string): Place {
    const known = this.#inner.get(key);
    if (known !== undefined) return known;
    const place = new Place(this, key);
    this.#inner.set(key, place);
    return place;
  }

  get pointer(): string {
    const keys: string[] = [];
    for (let place: Place = this; place.#outer !== null; place = place.#outer) keys.push(`/${escaped(place.#key)}`);
    return keys.reverse().join("");
  }
}

/** A subschema of the document. */
export class SchemaNode {
  readonly id: number;
  readonly value: boolean | Readonly<Record<string, unknown>>;
  readonly base: string;
  readonly place: Place;
  readonly #document: SchemaDocument;

  constructor(document: SchemaDocument, id: number, place: Place, value: SchemaNode["value"], base: string) {
    this.#document = document;
    this.id = id;
    this.place = place;
    this.value = value;
    this.base = base;
  }

  get pointer(): string {
    return this.place.pointer;
  }

  get patterns(): Patterns {
    return this.#document.patterns;
  }

  get keywords(): readonly string[] {
    return typeof this.value === "boolean" ? [] : Object.keys(this.value);
  }

  get(keyword: string): unknown {
    return typeof this.value !== "boolean" && Object.hasOwn(this.value, keyword) ? this.value[keyword] : undefined;
  }

  error(code: "invalid_value" | "unsupported", keyword: string, message: string): ServerError {
    return schemaError(code, `${this.pointer}/${keyword}`, message);
  }

  expected(keyword: string, what: string): ServerError {
    return this.error("invalid_value", keyword, `expected ${what}`);
  }

  number(keyword: string): number {
    const value = this.get(keyword);
    if (typeof value !== "number" || !Number.isFinite(value)) throw this.expected(keyword, "a number");
    return value;
  }

  count(keyword: string): number {
    const value = this.get(keyword);
    if (typeof value !== "number" || !Number.isInteger(value) || value < 0) {
      throw this.expected(keyword, "an integer of at least 0");
    }
    return value;
  }

  string(keyword: string): string {
    const value = this.get(keyword);
    if (typeof value !== "string") throw this.expected(keyword, "a string");
    return value;
  }

  array(keyword: string): readonly unknown[] {
    const value = this.get(keyword);
    if (!Array.isArray(value)) throw this.expected(keyword, "an array");
    return value;
  }

  names(keyword: string): readonly string[] {
    const names = this.array(keyword);
    if (!names.every((name) => typeof name === "string")) throw this.expected(keyword, "an array of strings");
    return names;
  }

  object(keyword: string): ReadonlyMap<string, unknown> {
    const value = this.get(keyword);
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw this.expected(keyword, "an object");
    return new Map(Object.entries(value));
  }

  schema(keyword: string): SchemaNode {
    return this.#document.node(this.place.at(keyword), this.get(keyword), this.base);
  }

  schemas(keyword: string): readonly SchemaNode[] {
    const list = this.array(keyword);
    if (list.length === 0 && keyword !== "prefixItems") throw this.expected(keyword, "an array that is not empty");
    const place = this.place.at(keyword);
    return list.map((value, i) => this.#document.node(place.at(String(i)), value, this.base));
  }

  named(keyword: string): ReadonlyMap<string, SchemaNode> {
    const place = this.place.at(keyword);
    const schemas = [...this.object(keyword)];
    spend(schemas.length);
    return new Map(schemas.map(([key, value]) => [key, this.#document.node(place.at(key), value, this.base)]));
  }

  reference(keyword: string): SchemaNode {
    return this.#document.resolve(this, keyword);
  }
}

export class SchemaDocument {
  readonly root: SchemaNode;
  readonly patterns = new Patterns();
  readonly #places = new Place(null, "");
  #nodes = 0;
  readonly #resources = new Map<string, SchemaNode>();
  readonly #anchors = new Map<string, SchemaNode>();
  /**
   * Number of occurrences of each $dynamicAnchor. If an anchor occurs more than once, the target of a $dynamicRef
   * depends on the references that led to it.
   */
  readonly #dynamicAnchors = new Map<string, number>();

  constructor(schema: unknown) {
    checkSize(schema);
    this.root = this.node(this.#places, schema, defaultBase);
    this.#resources.set(defaultBase, this.root);
    this.#index(this.root.value, () => this.#places, defaultBase);
  }

  /** Returns a node for an additional schema that is not part of the document. */
  beside(name: string, value: SchemaNode["value"]): SchemaNode {
    return this.node(this.#places.at(name), value, this.root.base);
  }

  node(place: Place, value: unknown, base: string): SchemaNode {
    if (place.node !== null) return place.node;
    if (typeof value !== "boolean" && (typeof value !== "object" || value === null || Array.isArray(value))) {
      throw schemaError("invalid_value", place.pointer, "expected a schema: an object, true or false");
    }
    spend(1);
    const plain = value as SchemaNode["value"];
    place.node = new SchemaNode(this, this.#nodes++, place, plain, ownBase(plain, base, place));
    return place.node;
  }

  resolve(from: SchemaNode, keyword: string): SchemaNode {
    const reference = from.string(keyword);
    const uri = resolved(reference, from.base);
    if (uri === null) throw from.expected(keyword, `a reference, got ${JSON.stringify(reference.slice(0, 100))}`);
    const { resource, fragment } = uri;
    if (keyword === "$dynamicRef" && (this.#dynamicAnchors.get(fragment) ?? 0) > 1) {
      throw from.error(
        "unsupported",
        keyword,
        "a dynamic reference with several anchors to choose from is not supported",
      );
    }
    const root = this.#resources.get(resource);
    const anchored = this.#anchors.get(`${resource}#${fragment}`);
    const target = anchored ?? (root === undefined ? undefined : this.#at(root, fragment));
    if (target !== undefined) return target;
    const where = JSON.stringify(reference.slice(0, 100));
    const isElsewhere = root === undefined;
    throw isElsewhere
      ? from.error(
          "unsupported",
          keyword,
          `${where} is outside this document, and references are not fetched; put it into $defs`,
        )
      : from.expected(keyword, `a reference to a part of this document; there is no ${where}`);
  }

  /** Returns the subschema at a JSON pointer of a resource. */
  #at(root: SchemaNode, fragment: string): SchemaNode | undefined {
    if (fragment === "") return root;
    if (!fragment.startsWith("/")) return undefined;
    let value: unknown = root.value;
    let base = root.base;
    let place = root.place;
    for (const part of fragment.slice(1).split("/")) {
      const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
      value = (value as Readonly<Record<string, unknown>>)[key];
      place = place.at(key);
      spend(1);
      if (typeof value === "object" && value !== null) base = ownBase(value as SchemaNode["value"], base, place);
    }
    return this.node(place, value, base);
  }

  /**
   * Records the $id and the anchors of all subschemas. Skips const, enum, examples and default, because they
   * contain instances, not schemas.
   */
  #index(value: object | boolean, place: () => Place, base: string): void {
    if (typeof value === "boolean") return;
    let own = base;
    spend(1);
    if (!Array.isArray(value)) {
      const { $id, $anchor, $dynamicAnchor } = value as Readonly<Record<string, unknown>>;
      const isSchema = [$id, $anchor, $dynamicAnchor].some((name) => typeof name === "string");
      if (isSchema) {
        const node = this.node(place(), value, base);
        own = node.base;
        if (typeof $id === "string") this.#resources.set(own, node);
        if (typeof $anchor === "string") this.#anchors.set(`${own}#${$anchor}`, node);
        if (typeof $dynamicAnchor === "string") {
          this.#anchors.set(`${own}#${$dynamicAnchor}`, node);
          this.#dynamicAnchors.set($dynamicAnchor, (this.#dynamicAnchors.get($dynamicAnchor) ?? 0) + 1);
        }
      }
    }
    for (const [key, inner] of Object.entries(value)) {
      if (typeof inner !== "object" || inner === null) continue;
      if (instanceKeywords.has(key) && !Array.isArray(value)) continue;
      let known: Place | null = null;
      const innerPlace = (): Place => {
        known ??= place().at(key);
        return known;
      };
      this.#index(inner, innerPlace, own);
    }
  }
}

const instanceKeywords = new Set(["const", "enum", "examples", "default"]);

function ownBase(value: SchemaNode["value"], base: string, place: Place): string {
  const id = typeof value === "boolean" || !Object.hasOwn(value, "$id") ? undefined : value.$id;
  // If $id is not a string, it is a property named "$id", and its value is a schema.
  if (typeof id !== "string") return base;
  const resource = resolved(id, base)?.resource;
  if (resource === undefined || resource.length > maxUri)
    throw schemaError(
      "invalid_value",
      `${place.pointer}/$id`,
      `expected a URI reference of at most ${maxUri} characters`,
    );
  return resource;
}

interface SplitUri {
  readonly resource: string;
  readonly fragment: string;
}

function resolved(reference: string, base: string): SplitUri | null {
  spendOn(reference.length + base.length);
  // The usual case: the reference points into its own resource.
  if (reference.startsWith("#")) return { resource: base, fragment: decoded(reference.slice(1)) };
  spend(4);
  if (!URL.canParse(reference, base)) return null;
  const uri = new URL(reference, base).href;
  const at = uri.indexOf("#");
  return at === -1
    ? { resource: uri, fragment: "" }
    : { resource: uri.slice(0, at), fragment: decoded(uri.slice(at + 1)) };
}

function decoded(fragment: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    return fragment;
  }
}

function escaped(key: string): string {
  return key.replaceAll("~", "~0").replaceAll("/", "~1");
}

/** Checks the depth and size of the schema before other code traverses it. */
function checkSize(schema: unknown): void {
  let values = 1;
  const todo: { value: unknown; depth: number }[] = [{ value: schema, depth: 0 }];
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    if (next.depth > maxDepth)
      throw schemaError("invalid_value", "", `expected a schema nested at most ${maxDepth} deep`);
    if (typeof next.value !== "object" || next.value === null) continue;
    const inner = Object.values(next.value);
    values += inner.length;
    if (values > maxValues) throw schemaError("invalid_value", "", `expected a schema of at most ${maxValues} values`);
    for (const value of inner) todo.push({ value, depth: next.depth + 1 });
  }
  spend(values / 4);
  const bytes = JSON.stringify(schema)?.length ?? 0;
  if (bytes > maxBytes)
    throw schemaError("invalid_value", "", `expected a schema of at most ${maxBytes} characters, got ${bytes}`);
}
