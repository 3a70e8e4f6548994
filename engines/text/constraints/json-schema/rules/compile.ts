// JSON schema compiler (draft 2020-12): writes one grammar rule for each set of schemas that a value must match. The
// rule is a choice of the alternatives of this set, by JSON type. Text that the grammar generates matches the schema,
// except for the keywords listed as unchecked. Called by answer.ts, calls.ts and lark/compile.ts. No side effects.

import { RegexProblem } from "../../../../../runtime/regex/syntax.ts";
import { bounded, OutOfTime, spend, spendOn, TooMuchWork } from "../../../../../runtime/regex/work.ts";
import { choiceOf, type Expression, Rules, rule, text } from "../../ebnf/expressions.ts";
import { ebnfText } from "../../ebnf/writer.ts";
import { type Conjunct, type Goal, numberTypes, top, types } from "../conjunct.ts";
import { SchemaDocument, type SchemaNode, schemaError } from "../document.ts";
import { matchesGoal } from "../evaluate.ts";
import { Expander, goalKey } from "../expand.ts";
import { has as contains } from "../values.ts";
import { arrayExpression } from "./arrays.ts";
import { CountedStrings } from "./counted-strings.ts";
import type { Emitter } from "./emitter.ts";
import { SharedRules, valueText } from "./json-text.ts";
import { numberExpression } from "./numbers.ts";
import { objectExpression } from "./objects.ts";
import { stringExpression } from "./strings.ts";

const maxRules = 8000;
/**
 * Maximum number of wide places: positions where almost any character may come. For each one, the grammar engine
 * searches its vocabulary, which takes about 10 ms.
 */
const maxWidePlaces = 400;
/**
 * Maximum number of possible values of an alternative of an item's schema. If there are more, the grammar does not
 * enforce `uniqueItems`, and the finished text is checked.
 */
const maxFewValues = 64;

export interface CompiledSchema {
  readonly rules: Rules;
  /** The rules, written in EBNF. */
  readonly grammar: string;
  /** Keywords that the grammar does not fully enforce. */
  readonly unchecked: readonly string[];
}

export function compileSchema(schema: unknown): CompiledSchema {
  const rules = new Rules(maxRules, () =>
    schemaError("unsupported", "", `it needs more than ${maxRules} rules; make it smaller`),
  );
  const { expression, unchecked, nothingLeft } = compileSchemaInto(schema, rules);
  rules.define("root", expression);
  const grammar = ebnfText(rules, "root");
  if (grammar === null) throw nothingLeft();
  return { rules, grammar, unchecked };
}

/** A compiled schema that is part of a larger grammar. */
export interface SchemaPart {
  readonly expression: Expression;
  readonly unchecked: readonly string[];
  /** Creates the error for a schema that no text matches. */
  nothingLeft(): Error;
}

/**
 * Budget of wide places (positions where almost any character may come). All schemas of one grammar share it, because
 * each wide place costs engine time.
 */
export class SchemaBudget {
  widePlaces = maxWidePlaces;
}

export function compileSchemaInto(schema: unknown, rules: Rules, budget = new SchemaBudget()): SchemaPart {
  return part(schema, (compiler, document) => compiler.compile([document.root]), rules, budget);
}

/** Like `compileSchemaInto`, but only for objects that match the schema. */
export function compileObjectsInto(schema: unknown, rules: Rules, budget = new SchemaBudget()): SchemaPart {
  const isObject = (document: SchemaDocument) => document.beside("object", { type: "object" });
  return part(schema, (compiler, document) => compiler.compile([document.root, isObject(document)]), rules, budget);
}

function part(
  schema: unknown,
  compile: (compiler: SchemaCompiler, document: SchemaDocument) => Expression,
  rules: Rules,
  budget: SchemaBudget,
): SchemaPart {
  const compiler = new SchemaCompiler(rules, budget);
  const expression = bounded(() => compile(compiler, new SchemaDocument(schema)));
  return { expression, unchecked: [...compiler.unchecked], nothingLeft: () => compiler.nothingLeft() };
}

class SchemaCompiler implements Emitter {
  readonly rules: Rules;
  readonly shared: SharedRules;
  readonly counted: CountedStrings;
  readonly unchecked = new Set<string>();
  readonly #expander = new Expander((keyword) => this.checkLater(keyword));
  readonly #names = new Map<string, string>();
  readonly #todo: { readonly name: string; readonly goal: Goal }[] = [];
  #where: SchemaNode | null = null;
  readonly #budget: SchemaBudget;
  readonly #afforded = new Set<string>();

  constructor(rules: Rules, budget: SchemaBudget) {
    this.rules = rules;
    this.#budget = budget;
    this.shared = new SharedRules(rules);
    this.counted = new CountedStrings(rules, () => this.shared.stringRest());
  }

  /** Returns the expression for values that match all of `roots`. */
  compile(roots: readonly SchemaNode[]): Expression {
    const whole = this.value(roots.map((node) => ({ node, negated: false })));
    try {
      for (let next = this.#todo.pop(); next !== undefined; next = this.#todo.pop()) {
        this.#where = next.goal[0]?.node ?? null;
        this.rules.define(next.name, this.#body(next.goal));
      }
    } catch (thrown) {
      const isLimit = thrown instanceof TooMuchWork || thrown instanceof RegexProblem;
      throw isLimit && !(thrown instanceof OutOfTime)
        ? schemaError("unsupported", this.#where?.pointer ?? "", thrown.message)
        : thrown;
    }
    return whole;
  }

  /** Creates the error for a schema that no text matches. */
  nothingLeft(): Error {
    const [leftOut] = this.#expander.leftOut;
    if (leftOut !== undefined)
      return leftOut.node.error("unsupported", leftOut.keyword, "the negation of this keyword is not supported here");
    return schemaError("invalid_value", "", "no value can match it: its keywords contradict each other");
  }

  value(goal: Goal): Expression {
    spend(goal.length);
    const said = goal.filter(({ node, negated }) => node.value !== !negated);
    if (said.length === 0) return this.shared.any();
    const key = goalKey(said);
    let name = this.#names.get(key);
    if (name === undefined) {
      name = this.rules.reserve("value");
      this.#names.set(key, name);
      this.#todo.push({ name, goal: said });
    }
    return rule(name);
  }

  alternatives(goal: Goal): readonly Conjunct[] {
    return this.#expander.alternatives(goal);
  }

  values(goal: Goal): readonly unknown[] | null {
    const all = this.alternatives(goal).map(fewValues);
    if (all.some((values) => values === null)) return null;
    return all.flatMap((values) => values ?? []).filter((value) => matchesGoal(value, goal, this.#expander));
  }

  affords(widePlaces: readonly string[]): boolean {
    const added = widePlaces.filter((key) => !this.#afforded.has(key));
    if (added.length > this.#budget.widePlaces) return false;
    this.#budget.widePlaces -= added.length;
    for (const key of added) this.#afforded.add(key);
    return true;
  }

  checkLater(keyword: string): void {
    this.unchecked.add(keyword);
  }

  refuse(keyword: string, message: string): Error {
    return schemaError("unsupported", `${this.#where?.pointer ?? ""}/${keyword}`, message);
  }

  #body(goal: Goal): Expression {
    const alternatives = this.alternatives(goal);
    if (alternatives.includes(top)) return this.shared.any();
    return choiceOf(alternatives.flatMap((conjunct) => this.#alternative(conjunct, goal)));
  }

  #alternative(conjunct: Conjunct, goal: Goal): readonly Expression[] {
    if (conjunct.values !== null) {
      const left = conjunct.values.filter((value) => matchesGoal(value, goal, this.#expander));
      spend(left.length);
      return left.map(valueText);
    }
    const isAllowed = (value: unknown): boolean => !contains(conjunct.excluded, value);
    const has = (bits: number): boolean => (conjunct.types & bits) !== 0;
    const options: (Expression | null)[] = [];
    if (has(types.object)) options.push(objectExpression(conjunct, this));
    if (has(types.array)) options.push(arrayExpression(conjunct, this));
    if (has(types.string)) options.push(stringExpression(conjunct, this));
    if (has(numberTypes)) options.push(numberExpression(conjunct, this));
    if (has(types.boolean)) options.push(...[true, false].filter(isAllowed).map((value) => text(String(value))));
    if (has(types.null) && isAllowed(null)) options.push(text("null"));
    spendOn(conjunct.excluded.length);
    const excludesDeep = conjunct.excluded.some((value) => typeof value === "object" && value !== null);
    if (excludesDeep && has(types.object | types.array)) this.checkLater("not");
    return options.filter((option) => option !== null);
  }
}

/** Returns all values that an alternative allows; null if it allows more than `maxFewValues`. */
function fewValues({ values, types: bits }: Conjunct): readonly unknown[] | null {
  if (values !== null) return values.length <= maxFewValues ? values : null;
  if ((bits & ~(types.null | types.boolean)) !== 0) return null;
  return [...((bits & types.boolean) === 0 ? [] : [true, false]), ...((bits & types.null) === 0 ? [] : [null])];
}
