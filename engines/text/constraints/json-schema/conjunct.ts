// Conjunct: one alternative of a schema, as a set of constraints for each JSON type. All constraints must hold.
// expand.ts expands schemas into alternatives; compile.ts compiles each alternative into a part of the grammar. No side
// effects.
import { accepts } from "../../../../runtime/regex/automaton.ts";
import type { Automaton } from "../../../../runtime/regex/states.ts";
import { spend, spendOn } from "../../../../runtime/regex/work.ts";
import type { SchemaNode } from "./document.ts";
import { common, has } from "./values.ts";

/** Maximum number of alternatives of one schema. */
export const maxAlternatives = 64;

/** A schema, or its negation. */
export interface Literal {
  readonly node: SchemaNode;
  readonly negated: boolean;
}

/** A set of schemas and negated schemas. A value matches the goal if it matches all of them. */
export type Goal = readonly Literal[];

/** JSON types as bits; numbers are split into integers and numbers with a fraction. */
export const types = { null: 1, boolean: 2, integer: 4, fraction: 8, string: 16, array: 32, object: 64 } as const;
export const numberTypes = types.integer | types.fraction;
export const allTypes = 127;

export interface Bound {
  readonly value: number;
  readonly exclusive: boolean;
}

export interface ArrayLayer {
  readonly prefix: readonly (Literal | null)[];
  /** Schema of the items that follow those in `prefix`; null = none. */
  readonly rest: Literal | null;
  /**
   * Whether the items that this layer (the constraints of one keyword) constrains count as evaluated.
   * `unevaluatedItems` does not apply to evaluated items.
   */
  readonly evaluates: boolean;
}

export interface Contains {
  readonly item: Literal;
  readonly min: number;
  readonly max: number | null;
}

export interface ObjectLayer {
  readonly properties: ReadonlyMap<string, Literal | null>;
  readonly patterns: readonly { readonly keys: Automaton; readonly source: string; readonly value: Literal | null }[];
  /** Schema of the keys that match neither a name nor a pattern. */
  readonly rest: Literal | null;
  readonly evaluates: boolean;
}

export interface Conjunct {
  readonly types: number;
  /** The only allowed values; null if any value is allowed. */
  readonly values: readonly unknown[] | null;
  readonly excluded: readonly unknown[];
  readonly lower: Bound | null;
  readonly upper: Bound | null;
  readonly multiples: readonly number[];
  readonly lengthMin: number;
  readonly lengthMax: number | null;
  readonly patterns: readonly Automaton[];
  readonly itemsMin: number;
  readonly itemsMax: number | null;
  readonly arrays: readonly ArrayLayer[];
  readonly contains: readonly Contains[];
  readonly unique: boolean;
  readonly propertiesMin: number;
  readonly propertiesMax: number | null;
  readonly required: readonly string[];
  readonly forbidden: readonly string[];
  readonly objects: readonly ObjectLayer[];
  readonly names: readonly Literal[];
}

/** The conjunct (set of constraints) that any value matches. */
export const top: Conjunct = {
  types: allTypes,
  values: null,
  excluded: [],
  lower: null,
  upper: null,
  multiples: [],
  lengthMin: 0,
  lengthMax: null,
  patterns: [],
  itemsMin: 0,
  itemsMax: null,
  arrays: [],
  contains: [],
  unique: false,
  propertiesMin: 0,
  propertiesMax: null,
  required: [],
  forbidden: [],
  objects: [],
  names: [],
};

/** Returns the intersection of two conjuncts (sets of constraints); null if they contradict each other. */
export function meet(a: Conjunct, b: Conjunct): Conjunct | null {
  if (a === top) return b;
  if (b === top) return a;
  spend(8);
  spendOn(2 * (sizeOf(a) + sizeOf(b)));
  return consistent({
    types: a.types & b.types,
    values: commonValues(a.values, b.values),
    excluded: [...a.excluded, ...b.excluded],
    lower: tighter(a.lower, b.lower, 1),
    upper: tighter(a.upper, b.upper, -1),
    multiples: [...a.multiples, ...b.multiples],
    lengthMin: Math.max(a.lengthMin, b.lengthMin),
    lengthMax: least(a.lengthMax, b.lengthMax),
    patterns: [...a.patterns, ...b.patterns],
    itemsMin: Math.max(a.itemsMin, b.itemsMin),
    itemsMax: least(a.itemsMax, b.itemsMax),
    arrays: [...a.arrays, ...b.arrays],
    contains: [...a.contains, ...b.contains],
    unique: a.unique || b.unique,
    propertiesMin: Math.max(a.propertiesMin, b.propertiesMin),
    propertiesMax: least(a.propertiesMax, b.propertiesMax),
    required: joined(a.required, b.required),
    forbidden: joined(a.forbidden, b.forbidden),
    objects: [...a.objects, ...b.objects],
    names: [...a.names, ...b.names],
  });
}

/** Quick test: true if the types or values of the conjuncts prove that no value matches both. False proves nothing. */
export function areApart(a: Conjunct, b: Conjunct): boolean {
  spend(0.5);
  if ((a.types & b.types) === 0) return true;
  return a.values !== null && b.values !== null && common(a.values, b.values).length === 0;
}

function joined(a: readonly string[], b: readonly string[]): readonly string[] {
  if (a.length === 0 || b.length === 0) return a.length === 0 ? b : a;
  spend((a.length + b.length) / 4);
  return [...new Set([...a, ...b])];
}

/** Returns the number of list entries that are copied when the conjunct is intersected with another conjunct. */
function sizeOf(conjunct: Conjunct): number {
  const { excluded, values, arrays, contains, objects, required, forbidden, multiples, patterns, names } = conjunct;
  const named = objects.reduce((sum, layer) => sum + 1 + layer.patterns.length, required.length + forbidden.length);
  const listed = excluded.length + (values?.length ?? 0) + arrays.length + contains.length;
  return named + listed + multiples.length + patterns.length + names.length;
}

/**
 * Removes the types and values that the conjunct's own constraints exclude. Returns null if no type or value remains.
 */
function consistent(from: Conjunct): Conjunct | null {
  let left = from.types;
  if (isEmptyRange(from.lower, from.upper)) left &= ~numberTypes;
  if (from.lengthMax !== null && from.lengthMin > from.lengthMax) left &= ~types.string;
  if (from.itemsMax !== null && from.itemsMin > from.itemsMax) left &= ~types.array;
  const needed = Math.max(from.propertiesMin, from.required.length);
  if (from.propertiesMax !== null && needed > from.propertiesMax) left &= ~types.object;
  if (hasCommon(from.required, from.forbidden)) left &= ~types.object;
  const narrowed = { ...from, types: left };
  if (from.values === null) return left === 0 ? null : narrowed;
  spend(from.values.length / 4);
  const values = from.values.filter((value) => allowsScalar(narrowed, value));
  const used = values.reduce((bits: number, value) => bits | typeOf(value), 0);
  return values.length === 0 ? null : { ...narrowed, values, types: left & used };
}

function hasCommon(keys: readonly string[], others: readonly string[]): boolean {
  if (keys.length === 0 || others.length === 0) return false;
  spend((keys.length + others.length) / 4);
  const known = new Set(others);
  return keys.some((key) => known.has(key));
}

/** True if the conjunct allows the value. Exact for scalars; ignores the contents of arrays and objects. */
function allowsScalar(conjunct: Conjunct, value: unknown): boolean {
  if ((typeOf(value) & conjunct.types) === 0) return false;
  if (has(conjunct.excluded, value)) return false;
  if (typeof value === "number")
    return !isEmptyRange(
      tighter(conjunct.lower, { value, exclusive: false }, 1),
      tighter(conjunct.upper, { value, exclusive: false }, -1),
    );
  return typeof value !== "string" || conjunct.patterns.every((pattern) => accepts(pattern, value));
}

export function typeOf(value: unknown): number {
  if (value === null) return types.null;
  if (typeof value === "boolean") return types.boolean;
  if (typeof value === "number") return Number.isInteger(value) ? types.integer : types.fraction;
  if (typeof value === "string") return types.string;
  return Array.isArray(value) ? types.array : types.object;
}

function commonValues(a: readonly unknown[] | null, b: readonly unknown[] | null): readonly unknown[] | null {
  if (a === null || b === null) return a ?? b;
  return common(a, b);
}

function tighter(a: Bound | null, b: Bound | null, direction: 1 | -1): Bound | null {
  if (a === null || b === null) return a ?? b;
  if (a.value === b.value) return a.exclusive ? a : b;
  return (a.value - b.value) * direction > 0 ? a : b;
}

function isEmptyRange(lower: Bound | null, upper: Bound | null): boolean {
  if (lower === null || upper === null) return false;
  return lower.value > upper.value || (lower.value === upper.value && (lower.exclusive || upper.exclusive));
}

function least(a: number | null, b: number | null): number | null {
  return a === null || b === null ? (a ?? b) : Math.min(a, b);
}

/** Returns a conjunct for values of the types in `bits` with these constraints. */
export function only(bits: number, constraints: Partial<Conjunct> = {}): Conjunct {
  return { ...top, ...constraints, types: bits };
}
