// Schema expansion: turns schemas into alternatives by resolving `anyOf`, `oneOf`, `not`, `if`, `dependent…` and
// `$ref`. All constraints of an alternative must hold. If a negation cannot be expressed, its alternatives are
// omitted, so that fewer texts match, but no invalid text. The number of alternatives is bounded. No side effects.

import { spend, spendOn } from "../../../../runtime/regex/work.ts";
import {
  areApart,
  type Conjunct,
  type Goal,
  type Literal,
  maxAlternatives,
  meet,
  only,
  top,
  types,
} from "./conjunct.ts";
import { isContradiction } from "./contradiction.ts";
import type { SchemaNode } from "./document.ts";
import { cannotNegate, leafAssertion } from "./keywords.ts";

const maxBranches = 256;
/** Maximum number of nested schemas that apply to one value, for example through a chain of references. */
const maxDepth = 300;

/** Keywords of earlier drafts that were removed or have changed their meaning, with their replacements. */
const outdated: ReadonlyMap<string, string> = new Map([
  ["dependencies", "dependentRequired or dependentSchemas"],
  ["additionalItems", "prefixItems and items"],
  ["$recursiveRef", "$dynamicRef or $ref"],
]);

class TooMany extends Error {}

export class Expander {
  /** Called with each keyword that the alternatives do not enforce, so that the finished text is checked for it. */
  readonly #checkLater: (keyword: string) => void;
  /** Keywords whose negation was omitted. If no alternative remains, the error names the first of these keywords. */
  readonly leftOut: { readonly node: SchemaNode; readonly keyword: string }[] = [];
  /** Keys of the literals (schemas and negated schemas) whose alternatives are incomplete because a negation was omitted. */
  readonly #incomplete = new Set<string>();
  #isIncomplete = false;
  readonly #known = new Map<string, readonly Conjunct[]>();
  readonly #open = new Set<string>();
  readonly #never = new Map<string, boolean>();
  readonly #alternatives = new Map<string, readonly Conjunct[]>();

  constructor(checkLater: (keyword: string) => void) {
    this.#checkLater = checkLater;
  }

  /** Returns the alternatives of a goal (a set of schemas). A value matches the goal if it matches an alternative. */
  alternatives(goal: Goal): readonly Conjunct[] {
    const key = goalKey(goal);
    const known = this.#alternatives.get(key);
    if (known !== undefined) return known;
    const made = this.#makeAlternatives(goal);
    this.#alternatives.set(key, made);
    return made;
  }

  #makeAlternatives(goal: Goal): readonly Conjunct[] {
    let all: readonly Conjunct[] = [top];
    for (const literal of goal) {
      const sets = () => this.#product(all, this.#literal(literal));
      all = refusing(sets, literal.node, "allOf");
    }
    return all.filter((conjunct) => !isContradiction(conjunct, this));
  }

  /** Returns true if certainly no value matches the goal. Examines at most `depth` levels of nested schemas. */
  isNever(goal: Goal, depth: number): boolean {
    if (depth === 0 || goal.length === 0) return false;
    const key = goalKey(goal);
    const known = this.#never.get(key);
    if (known !== undefined) return known;
    this.#never.set(key, false);
    let all: readonly Conjunct[] = [top];
    try {
      for (const literal of goal) all = this.#product(all, this.#literal(literal));
    } catch (thrown) {
      if (thrown instanceof TooMany) return false;
      throw thrown;
    }
    const answer = all.every((conjunct) => isContradiction(conjunct, this, depth - 1));
    this.#never.set(key, answer);
    return answer;
  }

  #literal({ node, negated }: Literal): readonly Conjunct[] {
    if (typeof node.value === "boolean") return node.value === negated ? [] : [top];
    const key = literalKey({ node, negated });
    const known = this.#known.get(key);
    if (known !== undefined) {
      this.#isIncomplete ||= this.#incomplete.has(key);
      return known;
    }
    if (this.#open.has(key))
      throw node.expected("$ref", "a reference that does not lead back to itself for the same value");
    if (this.#open.size >= maxDepth)
      throw node.error("unsupported", "$ref", `this applies more than ${maxDepth} nested schemas to one value`);
    spend(4);
    const wasIncomplete = this.#isIncomplete;
    this.#isIncomplete = false;
    this.#open.add(key);
    const made = negated ? this.#negative(node) : this.#positive(node);
    this.#open.delete(key);
    if (this.#isIncomplete) this.#incomplete.add(key);
    this.#isIncomplete ||= wasIncomplete;
    this.#known.set(key, made);
    return made;
  }

  #positive(node: SchemaNode): readonly Conjunct[] {
    let all: readonly Conjunct[] = [top];
    for (const keyword of node.keywords) {
      all = refusing(() => this.#product(all, this.#keyword(node, keyword, false)), node, keyword);
    }
    return all.map((conjunct) => withUnevaluated(node, conjunct));
  }

  #negative(node: SchemaNode): readonly Conjunct[] {
    const all = node.keywords.flatMap((keyword) => refusing(() => this.#keyword(node, keyword, true), node, keyword));
    if (all.length > maxAlternatives) throw new TooMany();
    return all;
  }

  /** Returns the alternatives (sets of constraints, one of which must hold) of a keyword or of its negation. */
  #keyword(node: SchemaNode, keyword: string, negated: boolean): readonly Conjunct[] {
    const instead = outdated.get(keyword);
    if (instead !== undefined)
      throw node.error("unsupported", keyword, `this is from an earlier draft; use ${instead}`);
    switch (keyword) {
      case "$ref":
      case "$dynamicRef":
        return this.#literal({ node: node.reference(keyword), negated });
      case "allOf":
        return negated ? this.#any(node.schemas(keyword), true) : this.#all(node.schemas(keyword), false);
      case "anyOf":
        return negated ? this.#all(node.schemas(keyword), true) : this.#any(node.schemas(keyword), false);
      case "oneOf":
        return negated ? this.#notOne(node.schemas(keyword)) : this.#one(node.schemas(keyword));
      case "not":
        return this.#literal({ node: node.schema(keyword), negated: !negated });
      case "if":
        return this.#condition(node, negated);
      case "dependentSchemas":
        return this.#dependentSchemas(node, negated);
      case "dependentRequired":
        return this.#dependentRequired(node, negated);
      default:
        if (negated && cannotNegate.has(keyword)) {
          this.#isIncomplete = true;
          this.leftOut.push({ node, keyword });
        }
        return leafAssertion(node, keyword, negated);
    }
  }

  #all(nodes: readonly SchemaNode[], negated: boolean): readonly Conjunct[] {
    let all: readonly Conjunct[] = [top];
    for (const node of nodes) all = this.#product(all, this.#literal({ node, negated }));
    return all;
  }

  #any(nodes: readonly SchemaNode[], negated: boolean): readonly Conjunct[] {
    const all: Conjunct[] = [];
    for (const node of nodes) {
      all.push(...this.#literal({ node, negated }));
      if (all.length > maxBranches) throw new TooMany();
    }
    return all;
  }

  /**
   * Returns the alternatives of `oneOf`: each branch, except the values that match another branch. If this exclusion
   * cannot be expressed, the finished text is checked against `oneOf`.
   */
  #one(nodes: readonly SchemaNode[]): readonly Conjunct[] {
    const branches = nodes
      .map((node) => ({ node, made: this.#literal({ node, negated: false }) }))
      .filter(({ made }) => made.length > 0);
    const all = branches.flatMap((branch) => {
      spend(branches.length);
      const others = branches.filter((other) => other !== branch && !this.#areDisjoint(branch.made, other.made));
      return others.reduce((left, { node }) => this.#without(left, node), branch.made);
    });
    if (all.length > maxBranches) throw new TooMany();
    return all;
  }

  #without(branch: readonly Conjunct[], node: SchemaNode): readonly Conjunct[] {
    const other = { node, negated: true };
    try {
      const all = this.#product(branch, this.#literal(other));
      const left = all.filter((conjunct) => !isContradiction(conjunct, this));
      if (left.length > 0 || !this.#incomplete.has(literalKey(other))) return left;
      this.#checkLater("oneOf");
      return branch;
    } catch (thrown) {
      if (!(thrown instanceof TooMany)) throw thrown;
      this.#checkLater("oneOf");
      return branch;
    }
  }

  #areDisjoint(a: readonly Conjunct[], b: readonly Conjunct[]): boolean {
    return a.every((left) =>
      b.every((right) => {
        if (areApart(left, right)) return true;
        const both = meet(left, right);
        return both === null || isContradiction(both, this);
      }),
    );
  }

  /** Returns the alternatives of a negated `oneOf`: no schema matches, or at least two match. */
  #notOne(nodes: readonly SchemaNode[]): readonly Conjunct[] {
    const all = [...this.#all(nodes, true)];
    for (const [i, a] of nodes.entries()) {
      for (let j = i + 1; j < nodes.length && all.length <= maxAlternatives; j++) {
        spend(1);
        all.push(...this.#all([a, nodes[j] as SchemaNode], false));
      }
    }
    return all;
  }

  #condition(node: SchemaNode, negated: boolean): readonly Conjunct[] {
    const test = node.schema("if");
    const branch = (name: string, isTrue: boolean): readonly Conjunct[] => {
      const condition = this.#literal({ node: test, negated: !isTrue });
      if (node.get(name) === undefined) return negated ? [] : condition;
      return this.#product(condition, this.#literal({ node: node.schema(name), negated }));
    };
    if (node.get("then") === undefined && node.get("else") === undefined) return negated ? [] : [top];
    return [...branch("then", true), ...branch("else", false)];
  }

  #dependentSchemas(node: SchemaNode, negated: boolean): readonly Conjunct[] {
    let all: readonly Conjunct[] = negated ? [] : [top];
    for (const [key, schema] of node.named("dependentSchemas")) {
      spendOn(2 * all.length);
      const present = this.#product(
        [only(types.object, { required: [key] })],
        this.#literal({ node: schema, negated }),
      );
      all = negated ? [...all, ...present] : this.#product(all, [{ ...top, forbidden: [key] }, ...present]);
    }
    return all;
  }

  #dependentRequired(node: SchemaNode, negated: boolean): readonly Conjunct[] {
    let all: readonly Conjunct[] = negated ? [] : [top];
    for (const [key, value] of node.object("dependentRequired")) {
      if (!Array.isArray(value) || !value.every((name) => typeof name === "string")) {
        throw node.expected("dependentRequired", "arrays of strings");
      }
      spend(value.length);
      spendOn(2 * all.length);
      const missing = value.map((name: string) => only(types.object, { required: [key], forbidden: [name] }));
      const present: Conjunct = { ...top, required: [...new Set([key, ...value])] };
      all = negated ? [...all, ...missing] : this.#product(all, [{ ...top, forbidden: [key] }, present]);
    }
    return all;
  }

  #product(a: readonly Conjunct[], b: readonly Conjunct[]): readonly Conjunct[] {
    if (b.length === 1 && b[0] === top) return a;
    const both: Conjunct[] = [];
    for (const left of a) {
      spend(b.length);
      for (const right of b) {
        const conjunct = meet(left, right);
        if (conjunct !== null) both.push(conjunct);
        if (both.length > maxAlternatives && a.length > 1) throw new TooMany();
      }
    }
    return both;
  }
}

export function goalKey(goal: Goal): string {
  spend(goal.length / 2);
  return [...new Set(goal.map(literalKey))].sort().join();
}

function literalKey({ node, negated }: Literal): string {
  return `${negated ? "!" : ""}${node.id}`;
}

function refusing<Value>(attempt: () => Value, node: SchemaNode, keyword: string): Value {
  try {
    return attempt();
  } catch (thrown) {
    if (!(thrown instanceof TooMany)) throw thrown;
    throw node.error("unsupported", keyword, `this expands to more than ${maxAlternatives} alternatives; simplify it`);
  }
}

/**
 * Applies `unevaluatedProperties` and `unevaluatedItems`: their schemas must match the properties and items that no
 * other keyword of the node evaluates.
 */
function withUnevaluated(node: SchemaNode, conjunct: Conjunct): Conjunct {
  let result = conjunct;
  spend(conjunct.objects.length + conjunct.arrays.length);
  if (node.get("unevaluatedProperties") !== undefined) {
    const seen = conjunct.objects.filter((layer) => layer.evaluates);
    if (seen.every((layer) => layer.rest === null)) {
      const keys = seen.flatMap((layer) => [...layer.properties.keys()]);
      spend(keys.length / 2);
      const properties = new Map(keys.map((key) => [key, null] as const));
      const patterns = seen.flatMap((layer) => layer.patterns.map((pattern) => ({ ...pattern, value: null })));
      const rest = { node: node.schema("unevaluatedProperties"), negated: false };
      result = { ...result, objects: [...conjunct.objects, { properties, patterns, rest, evaluates: true }] };
    }
  }
  if (node.get("unevaluatedItems") !== undefined) {
    const seen = conjunct.arrays.filter((layer) => layer.evaluates);
    if (seen.every((layer) => layer.rest === null)) {
      const count = seen.reduce((longest, layer) => Math.max(longest, layer.prefix.length), 0);
      spendOn(count);
      const rest = { node: node.schema("unevaluatedItems"), negated: false };
      const prefix = Array.from({ length: count }, () => null);
      result = { ...result, arrays: [...conjunct.arrays, { prefix, rest, evaluates: true }] };
    }
  }
  return result;
}
