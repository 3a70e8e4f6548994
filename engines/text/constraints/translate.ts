// Constraint translation: turns the constraints of an output into a grammar for the grammar engine. Called by text
// workers. All input from clients is bounded before it reaches an engine. No side effects.
import { ServerError } from "../../../runtime/errors.ts";
import { bounded, OutOfTime, TooMuchWork, unitsOfTranslation } from "../../../runtime/regex/work.ts";
import type { OutputGrammar } from "../../generation.ts";
import type { GrammarNotation, GrammarSource } from "../../grammar-source.ts";
import type { ThinkingTags } from "../parse/tool-format.ts";
import { compileAnswer } from "./answer.ts";
import { type CallConstraint, type CallRules, compileCalls } from "./calls.ts";
import { Endings } from "./ebnf/endings.ts";
import { anything, choice, type Expression, Rules, sequence, text, through } from "./ebnf/expressions.ts";
import { gbnfText } from "./ebnf/gbnf-writer.ts";
import { ebnfText } from "./ebnf/writer.ts";
import type { Check } from "./json-schema/check.ts";

const maxRules = 8000;
/**
 * Maximum number of elements of a grammar with non-strict tool schemas. The grammar engine takes about 2 s to compile a
 * grammar of this size.
 */
const maxLooseElements = 15_000;

/** All constraints of one output. */
export interface OutputConstraint {
  /** Grammar for an answer that is not a call; null: free text. */
  readonly grammar: OutputGrammar | null;
  readonly calls: CallConstraint | null;
  /**
   * Reasoning that may precede the answer. `hasBegun`: the prompt already contains its begin tag. null = the model
   * has no reasoning.
   */
  readonly thinking: { readonly tags: ThinkingTags; readonly hasBegun: boolean } | null;
  /** Fixed text that precedes an answer that is not a call. */
  readonly answerOpen: string;
  /** Notation of the grammar; absent: ebnf. */
  readonly notation?: GrammarNotation;
}

export interface Translation {
  readonly source: GrammarSource;
  /**
   * Returns the reason why a finished answer is invalid, or null if it is valid. `check` is null if the grammar
   * enforces the whole constraint.
   */
  readonly check: Check | null;
  /** Like `check`, for the arguments (JSON text) of a finished call to the tool `name`. */
  readonly checkCall: ((name: string, args: string) => string | null) | null;
}

/**
 * Translates the constraint. Throws ServerError `invalid_value` or `unsupported`, which names the invalid construct and
 * its position. Throws `timeout` if the machine was too busy to translate in time.
 */
export function translateOutput(constraint: OutputConstraint): Translation {
  const loose = loosened(constraint);
  return loose === null ? translated(constraint) : bounded(() => translatedWithLoose(constraint, loose));
}

/**
 * Translates with the schemas of non-strict tools. Translates without these schemas if they are unsupported, if they
 * take more than half of the work limit of a translation, or if the grammar has more than `maxLooseElements` elements.
 */
function translatedWithLoose(constraint: OutputConstraint, loose: OutputConstraint): Translation {
  try {
    return translated(constraint, unitsOfTranslation / 2, maxLooseElements);
  } catch (thrown) {
    if (!(thrown instanceof ServerError) || thrown.code !== "unsupported") throw thrown;
    return translated(loose);
  }
}

/** Translates the grammar of an answer without calls or thinking. */
export function translateGrammar(grammar: OutputGrammar): Translation {
  return translateOutput({ grammar, calls: null, thinking: null, answerOpen: "" });
}

function translated(constraint: OutputConstraint, units?: number, elements?: number): Translation {
  try {
    return bounded(() => compiled(constraint, elements), units);
  } catch (thrown) {
    if (!(thrown instanceof TooMuchWork)) throw thrown;
    throw new ServerError(thrown instanceof OutOfTime ? "timeout" : "unsupported", thrown.message);
  }
}

/**
 * Returns the constraint without the schemas of non-strict tools; null if there are no such schemas. The result is
 * used if the grammar with these schemas is too large.
 */
function loosened(constraint: OutputConstraint): OutputConstraint | null {
  const { calls } = constraint;
  if (calls === null || calls.specs.every(({ strict, parameters }) => strict || parameters === null)) return null;
  const specs = calls.specs.map((spec) => (spec.strict ? spec : { ...spec, parameters: null }));
  return { ...constraint, calls: { ...calls, specs } };
}

function compiled(constraint: OutputConstraint, elements?: number): Translation {
  const { grammar, calls, thinking, answerOpen = "", notation = "ebnf" } = constraint;
  const rules = new Rules(maxRules, tooManyRules);
  const answer = grammar === null || calls?.required ? null : compileAnswer(grammar, rules);
  const hasFreeText = !calls?.required || thinking !== null;
  const called = calls === null ? null : compileCalls(calls, answerOpen, hasFreeText, rules);
  const answered = answer === null ? null : sequence(text(answerOpen), answer.expression);
  const said = choice(...saidOf(answered, called, calls?.required ?? false));
  rules.define("root", thinking === null ? said : thoughtFirst(thinking, said, rules));
  const endings = new Endings(rules);
  if (answer !== null && !endings.canEnd(answer.expression)) throw answer.nothingLeft();
  const problem = called?.nothingLeft(endings) ?? null;
  if (problem !== null) throw problem;
  return {
    source: { kind: notation, grammar: written(rules, notation, elements, endings) ?? refuseEmpty() },
    check: answer?.check ?? null,
    checkCall: called?.check ?? null,
  };
}

function written(rules: Rules, notation: GrammarNotation, elements: number | undefined, endings: Endings) {
  // ebnfText() is called for both notations, because only this function checks that the grammar is not too large.
  const ebnf = ebnfText(rules, "root", elements, endings);
  return ebnf === null || notation === "ebnf" ? ebnf : gbnfText(rules, "root", endings);
}

/** Returns the alternatives for the output after the model's thinking. */
function saidOf(answer: Expression | null, called: CallRules | null, required: boolean): readonly Expression[] {
  if (called === null) return [answer ?? anything];
  if (required) return [called.calls];
  return answer === null ? called.free : [answer, called.calls];
}

/**
 * White space between the model's thinking and the answer. Models write up to two line breaks or a space there, but the
 * grammar of an answer does not include this white space.
 */
const afterThinking = choice(text(""), text("\n"), text("\n\n"), text(" "));

function thoughtFirst(
  { tags, hasBegun }: NonNullable<OutputConstraint["thinking"]>,
  said: Expression,
  rules: Rules,
): Expression {
  const thoughts = rules.add("thoughts", through(tags.end));
  const answer = rules.add("answer", said);
  if (hasBegun) return sequence(thoughts, afterThinking, answer);
  return choice(answer, sequence(text(tags.begin), thoughts, afterThinking, answer));
}

function tooManyRules(): ServerError {
  return new ServerError("unsupported", `the grammar needs more than ${maxRules} rules; make it smaller`);
}

function refuseEmpty(): never {
  throw new ServerError("invalid_value", "no text can match: the constraints of the output contradict each other");
}
