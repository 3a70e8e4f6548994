// Keyword assertions: the alternatives of a keyword such as `minimum`, or of its negation. Alternatives are sets of
// constraints (conjunct.ts); a value must match one of them. An empty list means that no value matches, or that the
// negation cannot be expressed. Called by expand.ts. No side effects.
import type { Automaton } from "../../../../runtime/regex/states.ts";
import { RegexProblem } from "../../../../runtime/regex/syntax.ts";
import { allTypes, type Conjunct, type Literal, maxAlternatives, numberTypes, only, top, types } from "./conjunct.ts";
import type { SchemaNode } from "./document.ts";
import { formatConstraint } from "./formats.ts";

type Assertion = readonly Conjunct[];
type Asserts = (node: SchemaNode, negated: boolean) => Assertion;

const typeBits: ReadonlyMap<string, number> = new Map([
  ["null", types.null],
  ["boolean", types.boolean],
  ["integer", types.integer],
  ["number", numberTypes],
  ["string", types.string],
  ["array", types.array],
  ["object", types.object],
]);

/** Assertions by keyword. A keyword without an entry is an annotation and constrains nothing. */
const assertions: ReadonlyMap<string, Asserts> = new Map<string, Asserts>([
  ["type", typeAssertion],
  ["const", (node, negated) => values([node.get("const")], negated)],
  ["enum", (node, negated) => values(node.array("enum"), negated)],
  ["minimum", (node, negated) => bound(node.number("minimum"), "lower", false, negated)],
  ["exclusiveMinimum", (node, negated) => bound(node.number("exclusiveMinimum"), "lower", true, negated)],
  ["maximum", (node, negated) => bound(node.number("maximum"), "upper", false, negated)],
  ["exclusiveMaximum", (node, negated) => bound(node.number("exclusiveMaximum"), "upper", true, negated)],
  ["multipleOf", multipleOf],
  ["minLength", (node, negated) => atLeast(node.count("minLength"), types.string, "lengthMin", "lengthMax", negated)],
  ["maxLength", (node, negated) => atMost(node.count("maxLength"), types.string, "lengthMin", "lengthMax", negated)],
  ["pattern", pattern],
  ["format", (node, negated) => (negated ? [] : [formatConstraint(node.string("format"))])],
  ["minItems", (node, negated) => atLeast(node.count("minItems"), types.array, "itemsMin", "itemsMax", negated)],
  ["maxItems", (node, negated) => atMost(node.count("maxItems"), types.array, "itemsMin", "itemsMax", negated)],
  ["uniqueItems", (node, negated) => uniqueItems(node, negated)],
  ["prefixItems", prefixItems],
  ["items", items],
  ["contains", contains],
  [
    "minProperties",
    (node, negated) => atLeast(node.count("minProperties"), types.object, "propertiesMin", "propertiesMax", negated),
  ],
  [
    "maxProperties",
    (node, negated) => atMost(node.count("maxProperties"), types.object, "propertiesMin", "propertiesMax", negated),
  ],
  ["required", required],
  ["properties", properties],
  ["patternProperties", patternProperties],
  ["additionalProperties", additionalProperties],
  ["propertyNames", (node, negated) => (negated ? [] : [{ ...top, names: [literal(node.schema("propertyNames"))] }])],
]);

/** Keywords whose negation cannot be expressed. */
export const cannotNegate: ReadonlySet<string> = new Set([
  "multipleOf",
  "format",
  "uniqueItems",
  "patternProperties",
  "additionalProperties",
  "propertyNames",
  "unevaluatedProperties",
  "unevaluatedItems",
]);

export function leafAssertion(node: SchemaNode, keyword: string, negated: boolean): Assertion {
  const asserts = assertions.get(keyword);
  if (asserts === undefined) return negated ? [] : [top];
  return asserts(node, negated);
}

function literal(node: SchemaNode, negated = false): Literal {
  return { node, negated };
}

function typeAssertion(node: SchemaNode, negated: boolean): Assertion {
  const value = node.get("type");
  const names = Array.isArray(value) ? value : [value];
  let bits = node.get("nullable") === true ? types.null : 0;
  for (const name of names) {
    const bit = typeBits.get(name);
    if (bit === undefined)
      throw node.expected(
        "type",
        `one of ${[...typeBits.keys()].join(", ")}, got ${JSON.stringify(name)?.slice(0, 60)}`,
      );
    bits |= bit;
  }
  return some(only(negated ? allTypes & ~bits : bits));
}

function values(all: readonly unknown[], negated: boolean): Assertion {
  return [negated ? { ...top, excluded: all } : { ...top, values: all }];
}

function bound(value: number, side: "lower" | "upper", exclusive: boolean, negated: boolean): Assertion {
  if (!negated) return [{ ...top, [side]: { value, exclusive } }];
  return [only(numberTypes, { [side === "lower" ? "upper" : "lower"]: { value, exclusive: !exclusive } })];
}

function multipleOf(node: SchemaNode, negated: boolean): Assertion {
  const value = node.number("multipleOf");
  if (value <= 0) throw node.expected("multipleOf", "a number above 0");
  return negated ? [] : [{ ...top, multiples: [value] }];
}

type Counted = "lengthMin" | "lengthMax" | "itemsMin" | "itemsMax" | "propertiesMin" | "propertiesMax";

function atLeast(count: number, bits: number, min: Counted, max: Counted, negated: boolean): Assertion {
  if (!negated) return [{ ...top, [min]: count }];
  return count === 0 ? [] : [only(bits, { [max]: count - 1 })];
}

function atMost(count: number, bits: number, min: Counted, max: Counted, negated: boolean): Assertion {
  return negated ? [only(bits, { [min]: count + 1 })] : [{ ...top, [max]: count }];
}

function pattern(node: SchemaNode, negated: boolean): Assertion {
  const automaton = keyAutomaton(node, "pattern", node.string("pattern"));
  return [
    negated ? only(types.string, { patterns: [node.patterns.not(automaton)] }) : { ...top, patterns: [automaton] },
  ];
}

/** Returns the automaton that accepts texts in which the pattern `source` occurs. */
function keyAutomaton(node: SchemaNode, keyword: string, source: string): Automaton {
  try {
    return node.patterns.find(source);
  } catch (thrown) {
    if (!(thrown instanceof RegexProblem)) throw thrown;
    throw node.error(thrown.code, keyword, thrown.message);
  }
}

function uniqueItems(node: SchemaNode, negated: boolean): Assertion {
  const value = node.get("uniqueItems");
  if (typeof value !== "boolean") throw node.expected("uniqueItems", "true or false");
  if (negated) return [];
  return [value ? { ...top, unique: true } : top];
}

function prefixItems(node: SchemaNode, negated: boolean): Assertion {
  const prefix = node.schemas("prefixItems");
  if (!negated)
    return [{ ...top, arrays: [{ prefix: prefix.map((item) => literal(item)), rest: null, evaluates: true }] }];
  // Builds at most one alternative above the maximum, because one is enough for the schema to be rejected.
  return prefix.slice(0, maxAlternatives + 1).map((item, i) => wrongItem(i, item));
}

/** Returns a conjunct for arrays whose item at index `i` does not match `item`. */
function wrongItem(i: number, item: SchemaNode): Conjunct {
  const prefix = [...Array.from({ length: i }, () => null), literal(item, true)];
  return only(types.array, { itemsMin: i + 1, arrays: [{ prefix, rest: null, evaluates: false }] });
}

function items(node: SchemaNode, negated: boolean): Assertion {
  if (Array.isArray(node.get("items")))
    throw node.error("unsupported", "items", "an array of schemas is from an earlier draft; use prefixItems");
  const item = node.schema("items");
  const before = node.get("prefixItems") === undefined ? 0 : node.schemas("prefixItems").length;
  if (!negated) {
    const prefix = Array.from({ length: before }, () => null);
    return [{ ...top, arrays: [{ prefix, rest: literal(item), evaluates: true }] }];
  }
  if (before > 0) return [wrongItem(before, item)];
  return [only(types.array, { itemsMin: 1, contains: [{ item: literal(item, true), min: 1, max: null }] })];
}

function contains(node: SchemaNode, negated: boolean): Assertion {
  const item = literal(node.schema("contains"));
  const min = node.get("minContains") === undefined ? 1 : node.count("minContains");
  const max = node.get("maxContains") === undefined ? null : node.count("maxContains");
  if (!negated) return [{ ...top, contains: [{ item, min, max }], itemsMin: 0 }];
  const fewer = min === 0 ? [] : [only(types.array, { contains: [{ item, min: 0, max: min - 1 }] })];
  const more = max === null ? [] : [only(types.array, { contains: [{ item, min: max + 1, max: null }] })];
  return [...fewer, ...more];
}

function required(node: SchemaNode, negated: boolean): Assertion {
  const names = node.names("required");
  if (!negated) return [{ ...top, required: [...new Set(names)] }];
  return names.map((name) => only(types.object, { forbidden: [name] }));
}

function properties(node: SchemaNode, negated: boolean): Assertion {
  const named = node.named("properties");
  if (!negated) {
    const all = new Map([...named].map(([key, value]) => [key, literal(value)] as const));
    return [{ ...top, objects: [{ properties: all, patterns: [], rest: null, evaluates: true }] }];
  }
  return [...named].map(([key, value]) => {
    const wrong = new Map([[key, literal(value, true)]]);
    return only(types.object, {
      required: [key],
      objects: [{ properties: wrong, patterns: [], rest: null, evaluates: false }],
    });
  });
}

function patternProperties(node: SchemaNode, negated: boolean): Assertion {
  if (negated) return [];
  const patterns = [...node.named("patternProperties")].map(([source, value]) => ({
    source,
    keys: keyAutomaton(node, "patternProperties", source),
    value: literal(value),
  }));
  return [{ ...top, objects: [{ properties: new Map(), patterns, rest: null, evaluates: true }] }];
}

function additionalProperties(node: SchemaNode, negated: boolean): Assertion {
  if (negated) return [];
  const named = node.get("properties") === undefined ? [] : [...node.named("properties").keys()];
  const sources = node.get("patternProperties") === undefined ? [] : [...node.named("patternProperties").keys()];
  const patterns = sources.map((source) => ({
    source,
    keys: keyAutomaton(node, "patternProperties", source),
    value: null,
  }));
  const rest = literal(node.schema("additionalProperties"));
  return [
    { ...top, objects: [{ properties: new Map(named.map((key) => [key, null])), patterns, rest, evaluates: true }] },
  ];
}

function some(conjunct: Conjunct): Assertion {
  return conjunct.types === 0 ? [] : [conjunct];
}
