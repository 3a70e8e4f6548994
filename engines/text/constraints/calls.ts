// Tool call rules: grammar rules for calls in the syntax of a tool-call format. The arguments of each call match the
// tool's schema. Called by translate.ts. No side effects.
import assert from "node:assert/strict";
import { ServerError } from "../../../runtime/errors.ts";
import { charsOf, complement, union } from "../../../runtime/regex/char-set.ts";
import type { ToolSpec } from "../../generation.ts";
import type { CallSyntax } from "../parse/tool-format.ts";
import type { Endings } from "./ebnf/endings.ts";
import {
  anything,
  choice,
  choiceOf,
  type Expression,
  empty,
  freeText,
  type Rules,
  repeat,
  rule,
  sequence,
  set,
  text,
} from "./ebnf/expressions.ts";
import { type Check, schemaCheck } from "./json-schema/check.ts";
import { closed } from "./json-schema/closed.ts";
import { compileObjectsInto, SchemaBudget, type SchemaPart } from "./json-schema/rules/compile.ts";

/**
 * Maximum number of calls if a call is required. Without a maximum, a weak model adds calls until the token limit. A
 * model can make further calls in its next turn, when it has the results of the first calls.
 */
export const maxRequiredCalls = 8;

/** Constraint on the tool calls of an output. */
export interface CallConstraint {
  readonly specs: readonly ToolSpec[];
  readonly syntax: CallSyntax;
  readonly required: boolean;
  readonly parallel: boolean;
}

export interface CallRules {
  /** Matches one or more calls and no other text. */
  readonly calls: Expression;
  /**
   * Alternatives for an output in which calls are optional: free text or calls. In formats with a trigger text, a
   * call may also follow free text.
   */
  readonly free: readonly Expression[];
  readonly check: ((name: string, args: string) => string | null) | null;
  /** Returns the error for the first tool that has no valid arguments; null if every tool has valid arguments. */
  nothingLeft(endings: Endings): unknown;
}

interface CalledTool {
  readonly spec: ToolSpec;
  readonly args: SchemaPart;
}

/**
 * Compiles the tools into rules for calls. `hasFreeText`: part of the output has no grammar. The format's parser may
 * find calls in that part, so the arguments of strict tools are checked afterwards. Throws ServerError `invalid_value`
 * or `unsupported`; the error names the tool whose parameters cannot be compiled.
 */
export function compileCalls(
  constraint: CallConstraint,
  answerOpen: string,
  hasFreeText: boolean,
  rules: Rules,
): CallRules {
  const { specs, syntax } = constraint;
  const tools = compileTools(specs, rules);
  const calls = tools.map(({ spec, args }) =>
    sequence(text(syntax.before(spec.name)), args.expression, text(syntax.after(spec.name))),
  );
  const rest = restOf(rules.add("call", choiceOf(calls)), constraint, rules);
  const whole = sequence(text(syntax.open), rest);
  return {
    calls: whole,
    free:
      syntax.trigger === null
        ? [freeBeside(answerOpen, rules), whole]
        : [freeUntil(syntax.trigger, syntax, rest, rules)],
    check: checkOf(tools, hasFreeText),
    nothingLeft: (endings) => {
      const empty = tools.find(({ args }) => !endings.canEnd(args.expression));
      return empty === undefined ? null : forTool(empty.spec, noObject(empty.args));
    },
  };
}

function compileTools(specs: readonly ToolSpec[], rules: Rules): readonly CalledTool[] {
  const budget = new SchemaBudget();
  // Tools with equal parameters share one compiled schema, because related tools often have equal parameters.
  const known = new Map<string, SchemaPart>();
  return specs.map((spec) => {
    const key = `${spec.strict} ${JSON.stringify(spec.parameters)}`;
    const args = known.get(key) ?? argumentsOf(spec, rules, budget);
    known.set(key, args);
    return { spec, args };
  });
}

function argumentsOf(spec: ToolSpec, rules: Rules, budget: SchemaBudget): SchemaPart {
  try {
    return compileObjectsInto(closed(spec.parameters ?? true), rules, budget);
  } catch (thrown) {
    if (spec.strict) throw forTool(spec, thrown);
    if (!(thrown instanceof ServerError)) throw thrown;
    return compileObjectsInto(true, rules, budget);
  }
}

/** Returns the expression for one or more calls and the closing text. They follow `open`, the text that begins the calls. */
function restOf(call: Expression, { syntax, parallel, required }: CallConstraint, rules: Rules): Expression {
  const { between, close } = syntax;
  if (!parallel || between === null) return sequence(call, text(close));
  if (required) {
    const next = rules.add("next", sequence(text(between), call));
    return sequence(call, repeat(next, 0, maxRequiredCalls - 1), text(close));
  }
  const name = rules.reserve("calls");
  return rules.define(name, sequence(call, choice(text(close), sequence(text(between), rule(name)))));
}

/**
 * Returns the expression for free text. If the trigger text occurs, calls must follow it until the end of the output.
 */
function freeUntil(trigger: string, { open }: CallSyntax, rest: Expression, rules: Rules): Expression {
  assert(open.startsWith(trigger), "calls begin with their trigger");
  const name = rules.reserve("triggered");
  rules.define(name, sequence(text(open.slice(trigger.length)), rest));
  return rules.add("free", freeText(trigger, name));
}

const blanks = charsOf(" \t\r\n");
const brace = charsOf("{");

/**
 * Returns the expression for text that the parser cannot mistake for a call: text that begins with `answerOpen`. If
 * `answerOpen` is empty, the first character after white space must not be "{".
 */
function freeBeside(answerOpen: string, rules: Rules): Expression {
  const rest = rules.add("free", anything);
  if (answerOpen !== "") return sequence(text(answerOpen), rest);
  const start = rules.reserve("start");
  const words = sequence(set(complement(union(blanks, brace))), rest);
  return rules.define(start, choice(empty, sequence(set(blanks), rule(start)), words));
}

function checkOf(tools: readonly CalledTool[], hasFreeText: boolean): CallRules["check"] {
  const checks = new Map<string, Check>();
  for (const { spec, args } of tools) {
    if (!spec.strict || (!hasFreeText && args.unchecked.length === 0)) continue;
    checks.set(spec.name, checkFor(spec));
  }
  return checks.size === 0 ? null : (name, args) => checks.get(name)?.(args) ?? null;
}

function checkFor(spec: ToolSpec): Check {
  try {
    return schemaCheck(spec.parameters ?? true);
  } catch (thrown) {
    throw forTool(spec, thrown);
  }
}

function noObject(args: SchemaPart): Error {
  const { message } = args.nothingLeft();
  return new ServerError("invalid_value", `arguments must be an object, but no object can match. ${message}`);
}

/** Returns the error with the tool's name added. */
function forTool({ name }: ToolSpec, thrown: unknown): unknown {
  if (!(thrown instanceof ServerError)) return thrown;
  const message = `the parameters of tool ${JSON.stringify(name)}: ${thrown.message}`;
  return new ServerError(thrown.code, message, { param: "tools", cause: thrown });
}
