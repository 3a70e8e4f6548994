// Owns the way from what a client demands of an output to what the grammar engine compiles. Called on the agents' threads;
// everything a client sends is bounded here before an engine sees it. Pure.
import { ServerError } from "../../../runtime/errors.ts";
import { bounded, OutOfTime, TooMuchWork, unitsOfTranslation } from "../../../runtime/regex/work.ts";
import type { OutputGrammar } from "../../generation.ts";
import type { GrammarSource } from "../../grammar-source.ts";
import type { ThinkingTags } from "../parse/tool-format.ts";
import { compileAnswer } from "./answer.ts";
import { type CallDemand, type CallRules, compileCalls } from "./calls.ts";
import { anything, choice, type Expression, Rules, sequence, text, through } from "./ebnf.ts";
import { ebnfText } from "./ebnf-text.ts";
import { Endings } from "./endings.ts";
import type { Check } from "./json-schema/check.ts";

const maxRules = 8000;
/** Elements of a grammar up to which schemas that are not strict are part of it: the engine takes some 2 s to compile them. */
const maxLooseElements = 15_000;

/** All that is demanded of one output. */
export interface OutputConstraint {
  /** What the answer must be where it is no call; null = free text. */
  readonly grammar: OutputGrammar | null;
  readonly calls: CallDemand | null;
  /** The answer may come after thinking, which the prompt may have begun; null where the model does not think. */
  readonly thinking: { readonly tags: ThinkingTags; readonly hasBegun: boolean } | null;
  /** What the format begins an answer with that is no call; nothing where it is left out. */
  readonly answerOpen: string;
}

export interface Translation {
  readonly source: GrammarSource;
  /** Says of a finished answer why it is none, or null; null where the grammar says it all. */
  readonly check: Check | null;
  /** The same of the arguments (JSON text) of a finished call of the tool, by name. */
  readonly checkCall: ((name: string, args: string) => string | null) | null;
}

/**
 * Throws ServerError `invalid_value` or `unsupported`, which names the construct at fault and where it stands; `timeout` where
 * the machine had too little time for it.
 */
export function translateOutput(demand: OutputConstraint): Translation {
  const loose = loosened(demand);
  return loose === null ? translated(demand) : bounded(() => translatedWithLoose(demand, loose));
}

/** With the schemas that are not strict, where that takes half of what a translation may; then without them. */
function translatedWithLoose(demand: OutputConstraint, loose: OutputConstraint): Translation {
  try {
    return translated(demand, unitsOfTranslation / 2, maxLooseElements);
  } catch (thrown) {
    if (!(thrown instanceof ServerError) || thrown.code !== "unsupported") throw thrown;
    return translated(loose);
  }
}

/** The same of an answer without calls or thinking. */
export function translateGrammar(grammar: OutputGrammar): Translation {
  return translateOutput({ grammar, calls: null, thinking: null, answerOpen: "" });
}

function translated(demand: OutputConstraint, units?: number, elements?: number): Translation {
  try {
    return bounded(() => compiled(demand, elements), units);
  } catch (thrown) {
    if (!(thrown instanceof TooMuchWork)) throw thrown;
    throw new ServerError(thrown instanceof OutOfTime ? "timeout" : "unsupported", thrown.message);
  }
}

/** Without the schemas that are not strict, which may be too much together; null where there is none. */
function loosened(demand: OutputConstraint): OutputConstraint | null {
  const { calls } = demand;
  if (calls === null || calls.specs.every(({ strict, parameters }) => strict || parameters === null)) return null;
  const specs = calls.specs.map((spec) => (spec.strict ? spec : { ...spec, parameters: null }));
  return { ...demand, calls: { ...calls, specs } };
}

function compiled({ grammar, calls, thinking, answerOpen = "" }: OutputConstraint, elements?: number): Translation {
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
    source: { kind: "ebnf", grammar: ebnfText(rules, "root", elements, endings) ?? refuseEmpty() },
    check: answer?.check ?? null,
    checkCall: called?.check ?? null,
  };
}

/** What an answer may be, each way apart. */
function saidOf(answer: Expression | null, called: CallRules | null, required: boolean): readonly Expression[] {
  if (called === null) return [answer ?? anything];
  if (required) return [called.calls];
  return answer === null ? called.free : [answer, called.calls];
}

/** Models put a line or two behind their thinking, which no grammar of an answer begins with. */
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
  return new ServerError("unsupported", `the grammar takes more than ${maxRules} rules; make it smaller`);
}

function refuseEmpty(): never {
  throw new ServerError("invalid_value", "no text can be an answer: what is demanded of it contradicts itself");
}
