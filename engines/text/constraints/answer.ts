// Answer grammar: compiles the grammar that a request sets for the answer (JSON schema, regex, Lark, llguidance or
// GBNF) into rules. Called by translate.ts. No side effects.
import { ServerError } from "../../../runtime/errors.ts";
import { parseRegex } from "../../../runtime/regex/parse.ts";
import { RegexProblem } from "../../../runtime/regex/syntax.ts";
import type { OutputGrammar } from "../../generation.ts";
import type { Expression, Rules } from "./ebnf/expressions.ts";
import { compileGbnfInto, noGbnfText } from "./gbnf.ts";
import { type Check, schemaCheck } from "./json-schema/check.ts";
import { compileSchemaInto } from "./json-schema/rules/compile.ts";
import { compileLarkInto, noLarkText } from "./lark/compile.ts";
import { readLlguidance } from "./lark/llguidance.ts";
import { regexExpression } from "./regex-rules.ts";

interface Answer {
  readonly expression: Expression;
  readonly check: Check | null;
  /** Creates the error for a grammar that matches no text. */
  nothingLeft(): Error;
}

/** Compiles the client's grammar into `rules`. Throws ServerError `invalid_value` or `unsupported`. */
export function compileAnswer(grammar: OutputGrammar, rules: Rules): Answer {
  switch (grammar.kind) {
    case "json":
      return schema({ type: "object" }, rules);
    case "json_schema":
      return schema(grammar.schema, rules);
    case "regex":
      return regex(grammar.pattern);
    case "lark":
      return lark(grammar.grammar, false, rules);
    case "gbnf":
      return { expression: compileGbnfInto(grammar.grammar, rules), check: null, nothingLeft: noGbnfText };
    case "llguidance": {
      const read = readLlguidance(grammar.grammar);
      return read.kind === "json_schema" ? schema(read.schema, rules) : lark(read.grammar, true, rules);
    }
  }
}

function schema(value: unknown, rules: Rules): Answer {
  const { expression, unchecked, nothingLeft } = compileSchemaInto(value, rules);
  return { expression, check: unchecked.length === 0 ? null : schemaCheck(value), nothingLeft };
}

function lark(grammar: string, extensions: boolean, rules: Rules): Answer {
  return { expression: compileLarkInto(grammar, extensions, rules), check: null, nothingLeft: noLarkText };
}

function regex(pattern: string): Answer {
  const nothingLeft = () => new ServerError("invalid_value", "regex: no text can match it");
  return { expression: regexOf(pattern), check: null, nothingLeft };
}

function regexOf(pattern: string): Expression {
  try {
    return regexExpression(parseRegex(pattern));
  } catch (thrown) {
    if (!(thrown instanceof RegexProblem)) throw thrown;
    throw new ServerError(thrown.code, `regex: ${thrown.message}`);
  }
}
