// Owns the way from what a client demands of an output to what the grammar engine compiles. Called on the agents' threads;
// everything a client sends is bounded here before an engine sees it. Pure.
import { ServerError } from "../../runtime/errors.ts";
import type { OutputGrammar } from "../chat.ts";
import { Rules } from "./ebnf.ts";
import { ebnfText } from "./ebnf-text.ts";
import { larkGrammar } from "./lark/compile.ts";
import { readLlguidance } from "./lark/llguidance.ts";
import { regexExpression } from "./regex/expression.ts";
import { parseRegex } from "./regex/parse.ts";
import { RegexProblem } from "./regex/syntax.ts";
import { type Check, schemaCheck } from "./schema/check.ts";
import { compileSchema } from "./schema/compile.ts";
import type { GrammarSource } from "./source.ts";

export interface Translation {
  readonly source: GrammarSource;
  /** Says of a finished output why it is no answer, or null; null where the grammar says it all. */
  readonly check: Check | null;
}

/** Throws ServerError `invalid_value` or `unsupported`, which names the construct at fault and where it stands. */
export function translateGrammar(grammar: OutputGrammar): Translation {
  switch (grammar.kind) {
    case "json":
      return translateSchema({ type: "object" });
    case "json_schema":
      return translateSchema(grammar.schema);
    case "regex":
      return ebnf(translateRegex(grammar.pattern));
    case "lark":
      return ebnf(larkGrammar(grammar.grammar, false));
    case "llguidance":
      return translateLlguidance(grammar.grammar);
  }
}

function ebnf(grammar: string): Translation {
  return { source: { kind: "ebnf", grammar }, check: null };
}

function translateSchema(schema: unknown): Translation {
  const { grammar, unchecked } = compileSchema(schema);
  return { source: { kind: "ebnf", grammar }, check: unchecked.length === 0 ? null : schemaCheck(schema) };
}

function translateLlguidance(text: string): Translation {
  const grammar = readLlguidance(text);
  return grammar.kind === "json_schema" ? translateSchema(grammar.schema) : ebnf(larkGrammar(grammar.grammar, true));
}

function translateRegex(pattern: string): string {
  const rules = new Rules(1, () => new Error("one rule is defined"));
  try {
    rules.define("root", regexExpression(parseRegex(pattern)));
  } catch (thrown) {
    if (!(thrown instanceof RegexProblem)) throw thrown;
    throw new ServerError(thrown.code, `regex: ${thrown.message}`);
  }
  const text = ebnfText(rules, "root");
  if (text === null) throw new ServerError("invalid_value", "regex: no text can match it");
  return text;
}
