// Endings: finds the expressions of a grammar that match at least one finite string. Removes all other parts, for
// example a rule that always refers to itself. Takes linear time, because each expression is visited once, however
// often it is used. No side effects.

import { spend } from "../../../../runtime/regex/work.ts";
import { type Expression, type Rules, repeat, sequence, sequenceOf } from "./expressions.ts";

type Composite = Expression & { readonly kind: "sequence" | "choice" | "repeat" };

/** Checks whether expressions match at least one finite string. */
export class Endings {
  readonly #rules: ReadonlySet<string>;
  readonly #known = new Map<Composite, boolean>();

  constructor(rules: Rules) {
    this.#rules = new Search(rules).endingRules();
  }

  canEnd(expression: Expression): boolean {
    if (expression.kind === "rule") return this.#rules.has(expression.name);
    if (!isComposite(expression)) return true;
    const known = this.#known.get(expression);
    if (known !== undefined) return known;
    const answer = this.#partsEnd(expression);
    this.#known.set(expression, answer);
    return answer;
  }

  #partsEnd(expression: Composite): boolean {
    spend(1);
    switch (expression.kind) {
      case "sequence":
        return expression.parts.every((part) => this.canEnd(part));
      case "choice":
        return expression.options.some((option) => this.canEnd(option));
      case "repeat":
        return expression.min === 0 || this.canEnd(expression.of);
    }
  }
}

function isComposite(expression: Expression): expression is Composite {
  return expression.kind === "sequence" || expression.kind === "choice" || expression.kind === "repeat";
}

/** A rule or expression that is not yet known to match a finite string. */
interface Waiting {
  /**
   * Number of parts that are not yet known to match a finite string. At 0, the whole rule or expression matches one.
   */
  left: number;
  readonly users: Waiting[];
  readonly rule: string | null;
}

/**
 * Finds the rules that match a finite string. When a rule is found, `left` decreases in every rule and expression
 * that uses this rule.
 */
class Search {
  readonly #rules = new Map<string, Waiting>();
  readonly #expressions = new Map<Composite, Waiting | null>();
  readonly #ended: Waiting[] = [];

  constructor({ byName }: Rules) {
    for (const [name, expression] of byName) {
      const rule = this.#rule(name);
      const blocker = this.#blocker(expression);
      if (blocker === null) this.#ended.push(rule);
      else blocker.users.push(rule);
    }
  }

  endingRules(): ReadonlySet<string> {
    const names = new Set<string>();
    for (let next = this.#ended.pop(); next !== undefined; next = this.#ended.pop()) {
      if (next.rule !== null) names.add(next.rule);
      spend(1 + next.users.length / 4);
      for (const user of next.users) if (--user.left === 0) this.#ended.push(user);
    }
    return names;
  }

  #rule(name: string): Waiting {
    const known = this.#rules.get(name);
    if (known !== undefined) return known;
    const made: Waiting = { left: 1, users: [], rule: name };
    this.#rules.set(name, made);
    return made;
  }

  /**
   * Returns the entry that decides whether `expression` matches a finite string; null if `expression` is known to
   * match one.
   */
  #blocker(expression: Expression): Waiting | null {
    if (expression.kind === "rule") return this.#rule(expression.name);
    if (!isComposite(expression)) return null;
    const known = this.#expressions.get(expression);
    if (known !== undefined) return known;
    const made = this.#blockerOfParts(expression);
    this.#expressions.set(expression, made);
    return made;
  }

  #blockerOfParts(expression: Composite): Waiting | null {
    spend(1);
    if (expression.kind === "repeat") return expression.min === 0 ? null : this.#blocker(expression.of);
    const isChoice = expression.kind === "choice";
    const parts = isChoice ? expression.options : expression.parts;
    spend(parts.length / 2);
    const blockers = parts.flatMap((part) => this.#blocker(part) ?? []);
    if (isChoice ? blockers.length < parts.length : blockers.length === 0) return null;
    const made: Waiting = { left: isChoice ? 1 : blockers.length, users: [], rule: null };
    for (const blocker of blockers) blocker.users.push(made);
    return made;
  }
}

/**
 * Returns the rules that `root` needs, without parts that match no finite string. Returns null if `root` matches no
 * finite string.
 */
export function pruned(
  rules: Rules,
  root: string,
  endings = new Endings(rules),
): ReadonlyMap<string, Expression> | null {
  if (!endings.canEnd({ kind: "rule", name: root })) return null;
  const pruner = new Pruner(endings);
  const live = new Map<string, Expression>();
  const todo = [root];
  for (let name = todo.pop(); name !== undefined; name = todo.pop()) {
    if (live.has(name)) continue;
    live.set(name, pruner.without(rules.byName.get(name) as Expression, todo));
  }
  return live;
}

class Pruner {
  readonly #endings: Endings;
  readonly #known = new Map<Composite, Expression>();

  constructor(endings: Endings) {
    this.#endings = endings;
  }

  /**
   * Returns the expression without the parts that match no finite string. On the first call for an expression, adds
   * the names of the rules that it refers to to `used`.
   */
  without(expression: Expression, used: string[]): Expression {
    if (expression.kind === "rule") used.push(expression.name);
    if (expression.kind === "any" && expression.next !== null) used.push(expression.next);
    if (!isComposite(expression)) return expression;
    const known = this.#known.get(expression);
    if (known !== undefined) return known;
    const made = this.#withoutDeadParts(expression, used);
    this.#known.set(expression, made);
    return made;
  }

  #withoutDeadParts(expression: Composite, used: string[]): Expression {
    spend(1);
    switch (expression.kind) {
      case "sequence":
        return this.#sequence(expression, used);
      case "choice": {
        const options = expression.options.filter((option) => this.#endings.canEnd(option));
        return { kind: "choice", options: options.map((option) => this.without(option, used)) };
      }
      case "repeat":
        if (!this.#endings.canEnd(expression.of)) return sequence();
        return repeat(this.without(expression.of, used), expression.min, expression.max);
    }
  }

  #sequence(expression: Composite & { kind: "sequence" }, used: string[]): Expression {
    const parts = expression.parts.map((part) => this.without(part, used));
    return parts.every((part, i) => part === expression.parts[i]) ? expression : sequenceOf(parts);
  }
}
