import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { OutputGrammar } from "../../../../engines/generation.ts";
import { choice, Rules, repeat, sequence, set, text } from "../../../../engines/text/constraints/ebnf/expressions.ts";
import { ebnfText } from "../../../../engines/text/constraints/ebnf/writer.ts";
import { translateGrammar } from "../../../../engines/text/constraints/translate.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { charSet, charsOf } from "../../../../runtime/regex/char-set.ts";

function ebnf(grammar: OutputGrammar): string {
  return translateGrammar(grammar).source.grammar;
}

function refusal(grammar: OutputGrammar): string {
  try {
    translateGrammar(grammar);
  } catch (thrown) {
    assert.ok(thrown instanceof ServerError, String(thrown));
    return `${thrown.code}: ${thrown.message}`;
  }
  assert.fail("it was accepted");
}

const schemaGrammar = (schema: unknown): OutputGrammar => ({ kind: "json_schema", schema, field: "grammar" });
const lark = (grammar: string): OutputGrammar => ({ kind: "lark", grammar });
const gbnf = (grammar: string): OutputGrammar => ({ kind: "gbnf", grammar });
const llguidance = (grammar: string): OutputGrammar => ({ kind: "llguidance", grammar });

describe("rules in the grammar engine's EBNF", () => {
  function written(expression: Parameters<Rules["define"]>[1]): string | null {
    const rules = new Rules(10, () => new Error("too many"));
    rules.define("root", expression);
    return ebnfText(rules, "root");
  }

  it("have characters beyond ASCII in a set as bytes, one byte twice", () => {
    assert.equal(written(set(charsOf("aé"))), "root ::= [aa] | [\\u00c3\\u00c3] [\\u00a9\\u00a9]");
  });

  it("have options that begin differently, so that the engine does not merge what follows them", () => {
    const cases: [Parameters<typeof written>[0], string][] = [
      [choice(text("namea"), text("a123"), text("name123")), 'root ::= "name" tail-1 | "a123"\ntail-1 ::= "a" | "123"'],
      [
        choice(text("日"), text("本"), text("é")),
        'root ::= [\\u00e6\\u00e6] tail-1 | "\\u00e9"\n' +
          "tail-1 ::= [\\u0097\\u0097] [\\u00a5\\u00a5] | [\\u009c\\u009c] [\\u00ac\\u00ac]",
      ],
      [choice(text("a"), text("ab")), 'root ::= "a" tail-1\ntail-1 ::= "" | "b"'],
    ];
    for (const [expression, expected] of cases) assert.equal(written(expression), expected);
  });

  it("have escapes with a fixed number of digits, so that following digits are not part of them", () => {
    assert.equal(
      written(sequence(text('\n"a'), set(charSet([[0x20, 0x21]])))),
      'root ::= "\\u000a\\"a" [\\u0020-\\u0021]',
    );
  });

  it("keep nested repetitions separate", () => {
    assert.equal(written(repeat(repeat(text("a"), 2, 3), 0, 1)), 'root ::= ("a"{2,3})?');
  });

  it("omit parts that never end, and show if nothing is left", () => {
    const endless = { kind: "rule", name: "root" } as const;
    assert.equal(written(choice(text("a"), sequence(text("b"), set([])))), 'root ::= "a"');
    assert.equal(written(sequence(text("a"), endless)), null);
  });

  it("are refused if their repetitions expand to more than the engine can hold", () => {
    let expression = text("a");
    for (let i = 0; i < 4; i++) expression = repeat(expression, 500, 500);
    assert.throws(() => written(expression), /more than 50000 elements/);
  });
});

describe("the constraint of an output", () => {
  it("is an object for JSON mode", () => {
    assert.match(ebnf({ kind: "json" }), /root ::= \S+/);
    assert.doesNotMatch(ebnf({ kind: "json" }), /root ::= any/);
  });

  it("has a check only if the grammar does not enforce all of it", () => {
    assert.equal(translateGrammar(schemaGrammar({ type: "string", maxLength: 200 })).check, null);
    const { check } = translateGrammar(schemaGrammar({ type: "string", maxLength: 2000 }));
    assert.equal(check?.('"short"'), null);
    assert.match(check?.(JSON.stringify("x".repeat(2001))) ?? "", /2000 characters/);
  });

  it("may be a regular expression that matches the whole output", () => {
    assert.equal(ebnf({ kind: "regex", pattern: "^(yes|no)!{1,2}$" }), 'root ::= ("yes" | "no") "!"{1,2}');
    assert.match(refusal({ kind: "regex", pattern: "(a)\\1" }), /^unsupported: regex: the backreference/);
    assert.match(refusal({ kind: "regex", pattern: "a^b" }), /^unsupported: regex: "\^" is not supported inside/);
    assert.match(refusal({ kind: "regex", pattern: "[" }), /^invalid_value: regex: the pattern ends too early/);
  });
});

describe("a Lark grammar", () => {
  it("becomes rules, with ignored text after each terminal", () => {
    const grammar = ebnf(lark('start: "a" B -> name\n     | [start] // a comment\nB: /[0-9]/ "x"i\n%ignore " "\n'));
    const lines = grammar.split("\n");
    assert.equal(lines[0], 'root ::= (" ")? rule_start');
    assert.ok(lines.includes('rule_start ::= "a" (" ")? terminal_B (" ")? | rule_start?'), grammar);
    assert.ok(lines.includes("terminal_B ::= [0-9] [Xx]"), grammar);
  });

  it("imports common terminals, also under another name", () => {
    assert.match(ebnf(lark("start: N\n%import common.INT -> N")), /rule_start ::= \[0-9\]\+/);
    assert.match(ebnf(lark("start: WORD INT\n%import common (WORD, INT)")), /rule_start ::= \[A-Za-z\]\+ \[0-9\]\+/);
  });

  it("bounds ignored text", () => {
    assert.match(ebnf(lark('start: "a"\n%import common.WS\n%ignore WS')), /\{1,40\}/);
  });

  for (const [grammar, expectedMessage] of [
    ["a.2: /x/\nstart: a", /unsupported: .*line 1: the priority of a/],
    ['t{x}: x\nstart: t{"a"}', /unsupported: .*the template t/],
    ['start: "a"\n\n%declare B', /unsupported: .*line 3: %declare/],
    ["start: /a(?=b)/", /unsupported: .*the lookahead/],
    ["start: /a/x", /unsupported: .*the flag "x"/],
    ["start: A\n%import python.A", /unsupported: .*expected an import from common/],
    ["start: A\n%import common.NOTHING -> A", /unsupported: .*common\.NOTHING/],
    ["start: a", /invalid_value: .*there is no rule a/],
    ["start: A", /invalid_value: .*there is no terminal A/],
    ['a: "x"', /invalid_value: .*a rule named "start"/],
    ['start: "a" start', /invalid_value: .*its rules never end/],
    ['start: "a"\nstart: "b"', /invalid_value: .*start is defined twice/],
    ['start: ("a"', /invalid_value: .*expected "\)", got the end of the line/],
    ['start: "a', /invalid_value: .*expected a token, got/],
    ['start: "a" ~ 5000', /invalid_value: .*a count of at most 1000/],
    ['start: "b".."a"', /invalid_value: .*a range of two characters/],
    ['start: %json {"type": "object"}', /unsupported: .*%json is supported only in a grammar of type llguidance/],
    [`start: ${"(".repeat(200)}"a"${")".repeat(200)}`, /invalid_value: .*nested deeper/],
  ] as const) {
    it(`is refused with the reason: ${grammar.slice(0, 40).replaceAll("\n", " / ")}`, () => {
      assert.match(refusal(lark(grammar)), expectedMessage);
    });
  }
});

describe("a GBNF grammar", () => {
  it("becomes rules, whatever its line ends", () => {
    const grammar = ebnf(
      gbnf(
        '# moves\nroot ::= (move " "\n  move)+ | "\\x41\\"\\u00e9" end?\nmove\n::= [a-h] [1-8]{2} # a square\nend ::= .\n',
      ),
    );
    const [root, ...lines] = grammar.split("\n");
    assert.equal(root, "root ::= gbnf_1");
    assert.ok(lines.includes('gbnf_1 ::= (gbnf_2 " " gbnf_2)+ | "A\\"\\u00e9" gbnf_3?'), grammar);
    assert.ok(lines.includes("gbnf_2 ::= [a-h] [1-8]{2}"), grammar);
  });

  it("has classes with escapes, and repetitions with one bound", () => {
    assert.match(ebnf(gbnf('root ::= [^"\\\\\\n]{,3} [\\U0001F600-\\U0001F64F-]{2,}')), /\{0,3\}.*\{2,\}/);
  });

  for (const [grammar, expectedMessage] of [
    ['a ::= "x"', /invalid_value: .*a rule named "root"/],
    ['root ::= "a"\nroot ::= "b"', /invalid_value: .*line 2: root is defined twice/],
    ["root ::= a", /invalid_value: .*there is no rule a/],
    ['root ::= "a" root', /invalid_value: .*its rules never end/],
    ['root ::= ("a"', /invalid_value: .*expected "\)", got the end/],
    ['root ::= "a', /invalid_value: .*expected a part of a rule, got/],
    ['root ::= "a")', /invalid_value: .*expected the next rule, got "\)"/],
    ['"a" root ::= "b"', /invalid_value: .*expected the name of a rule and ::=/],
    ['root ::= "a"{5000}', /invalid_value: .*at most 1000/],
    ['root ::= "a"{3,2}', /invalid_value: .*in order/],
    ['root ::= "a"{,}', /invalid_value: .*a number of repetitions/],
    ["root ::= [b-a]", /invalid_value: .*in \[b-a\]/],
    ['root ::= "\\UFFFFFFFF"', /invalid_value: .*there is no character/],
    ["root ::= <think> .*", /unsupported: .*a reference to a token/],
    [`root ::= ${"(".repeat(200)}"a"${")".repeat(200)}`, /invalid_value: .*nested deeper/],
  ] as const) {
    it(`is refused with the reason: ${grammar.slice(0, 40).replaceAll("\n", " / ")}`, () => {
      assert.match(refusal(gbnf(grammar)), expectedMessage);
    });
  }
});

describe("an llguidance grammar", () => {
  it("may be a JSON object around a schema or around Lark text", () => {
    assert.match(ebnf(llguidance('{"grammars": [{"json_schema": {"const": 1}}]}')), /"1"/);
    assert.match(ebnf(llguidance('{"grammars": [{"lark_grammar": "start: /x/"}]}')), /rule_start ::= "x"/);
  });

  it("may be Lark text with schemas inside", () => {
    const grammar = ebnf(llguidance('%llguidance {}\nstart: "<" %json {"const": "}"} ">"{2}\n'));
    assert.match(grammar, /rule_start ::= "<" \S+ ">"\{2\}/);
    assert.match(grammar, /"\\"\}\\""/);
  });

  for (const [grammar, expectedMessage] of [
    ['{"grammars": []}', /invalid_value: .*expected "grammars"/],
    ['{"grammars": [{"regex": "a"}]}', /unsupported: .*grammars\/0\/regex/],
    ['{"grammars": [{"lark_grammar": "start: /x/"}, {"json_schema": {}}]}', /unsupported: .*more than one/],
    ['{"grammars": [{"json_schema": {}}], "max_tokens": 5}', /unsupported: .*"max_tokens"/],
    ["{", /invalid_value: .*JSON object/],
    ['%llguidance {"no_forcing": true}\nstart: "a"', /unsupported: .*"no_forcing"/],
    ['start: <tool> "a"', /unsupported: .*begins with "<"/],
    ['start: %json {"type": "string", "maxLength": 5000}', /unsupported: .*maxLength cannot be enforced inside %json/],
  ] as const) {
    it(`is refused with the reason: ${grammar.slice(0, 40)}`, () => {
      assert.match(refusal(llguidance(grammar)), expectedMessage);
    });
  }
});
