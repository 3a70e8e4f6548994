// GBNF writer for models on other servers: character classes, names, free text, and the grammars of schemas and tool calls. Our own
// GBNF reader must accept its output.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  anything,
  choice,
  freeText,
  Rules,
  repeat,
  sequence,
  set,
  text,
  through,
} from "../../../../engines/text/constraints/ebnf/expressions.ts";
import { gbnfText } from "../../../../engines/text/constraints/ebnf/gbnf-writer.ts";
import { translateGrammar, translateOutput } from "../../../../engines/text/constraints/translate.ts";
import { charsOf } from "../../../../runtime/regex/char-set.ts";

function rulesWith(define: (rules: Rules) => void): string | null {
  const rules = new Rules(10, () => new Error("too many"));
  define(rules);
  return gbnfText(rules, "root");
}

const written = (expression: Parameters<Rules["define"]>[1]) => rulesWith((rules) => rules.define("root", expression));

describe("rules in GBNF", () => {
  it("have characters beyond ASCII as characters, not as bytes", () => {
    assert.equal(written(set(charsOf("aé"))), "root ::= [a\\u00e9]");
    assert.equal(written(text('日"\\\n😀')), 'root ::= "\\u65e5\\"\\\\\\u000a\\U0001f600"');
  });

  it("have names without underscores, and repetitions in parentheses", () => {
    const rules = rulesWith((all) => {
      const digits = all.add("digits", repeat(set(charsOf("01")), 1, 3));
      all.define("root", sequence(text("n="), digits, repeat(choice(text("x"), digits), 0, null)));
    });
    assert.equal(rules, 'root ::= "n=" digits--1 ("x" | digits--1)*\ndigits--1 ::= ([0-1]){1,3}');
  });

  it("find the end of free text, even after partial matches", () => {
    assert.equal(written(anything), "root ::= [^\\u0000]*");
    assert.equal(
      written(through("aab")),
      [
        'root ::= "a" root--at-1 | "b" root | [^ab] root',
        'root--at-1 ::= "a" root--at-2 | "b" root | [^ab] root',
        'root--at-2 ::= "a" root--at-2 | "b" | [^ab] root',
      ].join("\n"),
    );
    const called = rulesWith((all) => {
      all.define("call", text("!"));
      all.define("root", freeText("<c>", "call"));
    });
    assert.match(called ?? "", /^root--at-2 ::= .*">" call \| .* \| ""$/m);
  });

  it("of schemas and calls can be read again", () => {
    const schema = { type: "object", properties: { a: { type: "string", pattern: "^é+$" }, b: { enum: [1, "x"] } } };
    const grammar = { kind: "json_schema", schema, field: "grammar" } as const;
    const { source } = translateOutput({
      ...{ grammar, calls: null, thinking: null, answerOpen: "" },
      notation: "gbnf",
    });
    assert.equal(source.kind, "gbnf");
    assert.doesNotThrow(() => translateGrammar({ kind: "gbnf", grammar: source.grammar }));
    const tags = { begin: "<think>", end: "</think>" };
    const thought = translateOutput({
      ...{ grammar, calls: null, answerOpen: "", notation: "gbnf" },
      thinking: { tags, hasBegun: true },
    });
    assert.doesNotThrow(() => translateGrammar({ kind: "gbnf", grammar: thought.source.grammar }));
  });
});
