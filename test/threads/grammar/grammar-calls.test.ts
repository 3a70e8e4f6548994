// Grammars of tool calls and of reasoning on real grammar threads, with the vocabulary of a real model: the texts that each
// constraint allows, and their tokens.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import fc from "fast-check";
import type { Matcher } from "../../../engines/decoding/grammar/matcher.ts";
import { endOfGenerationTokens } from "../../../engines/files/gguf/end-of-generation.ts";
import { readModelMetadata } from "../../../engines/files/gguf/metadata.ts";
import type { ToolSpec } from "../../../engines/generation.ts";
import type { GrammarSource } from "../../../engines/grammar-source.ts";
import { type CallConstraint, maxRequiredCalls } from "../../../engines/text/constraints/calls.ts";
import { type OutputConstraint, translateOutput } from "../../../engines/text/constraints/translate.ts";
import type { CallSyntax } from "../../../engines/text/parse/tool-format.ts";
import { FixedTokens } from "../../../engines/text/tokenizer/fixed-tokens.ts";
import { createVocabulary, type Vocabulary } from "../../../engines/text/tokenizer/vocabulary.ts";
import { realModel } from "../../fixtures/models/models.ts";
import { writeTinyModel } from "../../fixtures/models/tiny-gguf.ts";
import { createPatientHost, type PatientHost } from "../../fixtures/text/grammars.ts";

const tagged: CallSyntax = {
  trigger: "<tool_call>",
  open: "<tool_call>\n",
  between: "\n</tool_call>\n<tool_call>\n",
  close: "\n</tool_call>",
  before: (name) => `{"name": "${name}", "arguments": `,
  after: () => "}",
};
const bare: CallSyntax = { ...tagged, trigger: null, open: "", between: "; ", close: "" };

const weather: ToolSpec = {
  name: "get_weather",
  description: "The weather",
  parameters: {
    type: "object",
    properties: { city: { type: "string" }, days: { type: "integer" } },
    required: ["city"],
    additionalProperties: false,
  },
  strict: true,
};
const time: ToolSpec = { name: "get_time", description: null, parameters: null, strict: false };

const call = (name: string, args: string) => `${tagged.before(name)}${args}}`;
const inTags = (...calls: string[]) => tagged.open + calls.join(tagged.between ?? "") + tagged.close;
const paris = call("get_weather", '{"city": "Paris"}');
const clock = call("get_time", '{"zone": [1, null]}');

const calling = (changes: Partial<CallConstraint> = {}): OutputConstraint => ({
  grammar: null,
  calls: { specs: [weather, time], syntax: tagged, required: true, parallel: true, ...changes },
  thinking: null,
  answerOpen: "",
});

interface Rig {
  readonly host: PatientHost;
  readonly vocabulary: Vocabulary;
  readonly ends: readonly number[];
  /** Tokens by their bytes, as a string with one character per byte. */
  readonly tokens: ReadonlyMap<string, number>;
}

async function start(path: string): Promise<Rig> {
  const { tokenizer } = await readModelMetadata(path);
  const vocabulary = createVocabulary(tokenizer);
  const ends = endOfGenerationTokens(tokenizer);
  const options = { modelPath: path, vocabSize: vocabulary.size, endOfGeneration: ends, maxMatchers: 16, threads: 1 };
  const pieces = Array.from({ length: vocabulary.size }, (_, token) => Buffer.from(vocabulary.piece(token)));
  const tokens = new Map(pieces.map((piece, token) => [piece.toString("latin1"), token]));
  return { host: createPatientHost(options), vocabulary, ends, tokens };
}

const allows = (mask: Int32Array, token: number) => ((mask[token >> 5]! >> (token & 31)) & 1) === 1;

/**
 * Outcome for a text: "refused" = the grammar rejects it; "open" = the text must continue; "done" = the text may end. A
 * forced token may extend beyond the text.
 */
type Outcome = "refused" | "open" | "done";

function follow({ vocabulary, ends, tokens }: Rig, matcher: Matcher, text: string): Outcome {
  let rest = Buffer.from(text).toString("latin1");
  try {
    for (;;) {
      const { forced, mask } = matcher.allowed();
      for (const token of forced) {
        const piece = Buffer.from(vocabulary.piece(token)).toString("latin1");
        if (rest.length < piece.length) return piece.startsWith(rest) ? "open" : "refused";
        if (!rest.startsWith(piece)) return "refused";
        rest = rest.slice(piece.length);
      }
      if (rest === "") return ends.some((end) => allows(mask, end)) ? "done" : "open";
      const token = longestToken(tokens, rest, mask);
      if (token === null) return "refused";
      rest = rest.slice(vocabulary.piece(token).length);
      matcher.accept(token);
    }
  } finally {
    matcher.close();
  }
}

function longestToken(tokens: Rig["tokens"], rest: string, mask: Int32Array): number | null {
  for (let length = 24; length > 0; length--) {
    const token = tokens.get(rest.slice(0, length));
    if (token !== undefined && allows(mask, token)) return token;
  }
  return null;
}

let rig: Rig;
before(async () => {
  rig = await start((await realModel()).path);
});
after(() => rig.host.dispose());

async function outcomes(constraint: OutputConstraint, texts: readonly string[], at = rig): Promise<Outcome[]> {
  const grammar = await at.host.compile(translateOutput(constraint).source);
  return texts.map((text) => follow(at, grammar.open(), text));
}

async function assertOutcomes(
  constraint: OutputConstraint,
  expected: Readonly<Record<string, Outcome>>,
): Promise<void> {
  const texts = Object.keys(expected);
  const got = await outcomes(constraint, texts);
  assert.deepEqual(Object.fromEntries(texts.map((text, i) => [text, got[i]])), expected);
}

describe("calls that must come", () => {
  it("name given tools, with arguments that match their schemas, and nothing else", async () => {
    await assertOutcomes(calling(), {
      [inTags(paris)]: "done",
      [inTags(clock)]: "done",
      [inTags(call("get_time", "{}"))]: "done",
      [inTags(call("get_time", "[]"))]: "refused",
      [inTags(call("get_weather", "{}"))]: "refused",
      [inTags(call("get_weather", '{"city": 7}'))]: "refused",
      [inTags(call("get_news", "{}"))]: "refused",
      Sure: "refused",
      [`${inTags(paris)} `]: "refused",
    });
  });

  it("may be several, unless parallel calls are off", async () => {
    const two = inTags(paris, clock);
    await assertOutcomes(calling(), { [two]: "done" });
    await assertOutcomes(calling({ parallel: false }), { [two]: "refused", [inTags(paris)]: "done" });
    await assertOutcomes(calling({ syntax: { ...tagged, between: null } }), { [two]: "refused" });
  });

  it("are limited in number if they are required", async () => {
    const several = (count: number) => inTags(...Array.from({ length: count }, () => clock));
    await assertOutcomes(calling(), {
      [several(maxRequiredCalls)]: "done",
      [several(maxRequiredCalls + 1)]: "refused",
    });
    await assertOutcomes(calling({ required: false }), { [several(maxRequiredCalls + 1)]: "done" });
  });

  it("are forced up to the model's first choice", async () => {
    const source = translateOutput(calling({ specs: [weather], parallel: false })).source;
    const matcher = (await rig.host.compile(source)).open();
    const { forced } = matcher.allowed();
    const text = Buffer.concat([...forced].map((token) => rig.vocabulary.piece(token))).toString();
    matcher.close();
    assert.ok(text.startsWith('<tool_call>\n{"name": "get_weather", "arguments":'), text);
  });

  it("are written without marks if the format has none", async () => {
    await assertOutcomes(calling({ syntax: bare }), {
      [paris]: "done",
      [`${paris}; ${clock}`]: "done",
      Hello: "refused",
    });
  });
});

describe("calls that may come", () => {
  it("are well-formed after their mark in free text, and end it", async () => {
    await assertOutcomes(calling({ required: false }), {
      "": "done",
      "It is <b>sunny</b> — 名前 <tool": "done",
      [`Let me see.\n${inTags(paris)}`]: "done",
      [inTags(paris, clock)]: "done",
      "Use <tool_call>": "open",
      "Use <tool_call> like this": "refused",
      [inTags(call("get_weather", '{"town": 1}'))]: "refused",
      [`${inTags(paris)} Done.`]: "refused",
    });
  });

  it("leave other text free, however it is cut into tokens", async () => {
    const grammar = await rig.host.compile(translateOutput(calling({ required: false })).source);
    const fragments = ["<", "<tool", "tool", "_call", ">", "<tool_call", "l>", "é", " ", "名", "\n", "</tool_call>"];
    const text = fc.array(fc.constantFrom(...fragments), { maxLength: 8 }).map((parts) => parts.join(""));
    fc.assert(
      fc.property(text, (free) => {
        fc.pre(!free.includes("<tool_call>"));
        assert.equal(follow(rig, grammar.open(), free), "done");
        assert.equal(follow(rig, grammar.open(), `${free}<tool_call>!`), "refused");
      }),
      { numRuns: 60 },
    );
  });

  it("without marks begin like JSON", async () => {
    await assertOutcomes(calling({ syntax: bare, required: false }), {
      "": "done",
      "Hello {there}": "done",
      " \nHello": "done",
      [paris]: "done",
      '{"name": "get_weather", "arguments": {"town': "refused",
      "{x": "refused",
      " {x": "refused",
    });
    await assertOutcomes(
      { ...calling({ syntax: bare, required: false }), answerOpen: "all\n" },
      {
        "all\n{x": "done",
        [paris]: "done",
        Hello: "refused",
      },
    );
  });

  it("stand beside an answer that has a grammar of its own", async () => {
    const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
    const grammar = { kind: "json_schema", schema, field: "response_format" } as const;
    await assertOutcomes(
      { ...calling({ required: false }), grammar },
      {
        '{"ok": true}': "done",
        [inTags(paris)]: "done",
        Hello: "refused",
      },
    );
    await assertOutcomes({ ...calling(), grammar }, { '{"ok": true}': "refused", [inTags(paris)]: "done" });
  });
});

describe("thinking", () => {
  const tags = { begin: "<think>", end: "</think>" };
  const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
  const constraint = (hasBegun: boolean): OutputConstraint => ({
    grammar: { kind: "json_schema", schema, field: "response_format" },
    calls: null,
    thinking: { tags, hasBegun },
    answerOpen: "",
  });

  it("is free until its end, then the answer's grammar begins", async () => {
    await assertOutcomes(constraint(true), {
      "Hm, {not} </thin": "open",
      'Hm.\n</think>\n\n{"ok": true}': "done",
      'Hm.</think>{"ok": true}': "done",
      "Hm.</think>No": "refused",
      '{"ok": true}': "open",
    });
  });

  it("is optional if the prompt has not begun it", async () => {
    await assertOutcomes(constraint(false), {
      '{"ok": true}': "done",
      '<think>\nHm.\n</think>\n{"ok": true}': "done",
      "<think>": "open",
      Hm: "refused",
    });
  });

  it("may contain the marks of calls, which count only after it", async () => {
    const thinking = { tags, hasBegun: false };
    await assertOutcomes(
      { ...calling(), thinking },
      {
        [`<think>A <tool_call> then.</think>\n${inTags(paris)}`]: "done",
        [inTags(clock)]: "done",
      },
    );
    await assertOutcomes(
      { ...calling({ required: false }), thinking },
      {
        "<think>A <tool_call> then.</think>\nNo.": "done",
        "<think>A</think>\nA <tool_call> then.": "refused",
      },
    );
  });

  it("comes before the format's beginning of an answer", async () => {
    await assertOutcomes(
      { ...constraint(false), answerOpen: "final: " },
      {
        'final: {"ok": true}': "done",
        '<think>Hm.</think>final: {"ok": true}': "done",
        '{"ok": true}': "refused",
      },
    );
  });
});

describe("control tokens that are shown", () => {
  const [open, close]: readonly [string, string] = ["<call>", "</call>"];
  const syntax: CallSyntax = { ...tagged, trigger: open, open, between: null, close };
  let tiny: Rig;
  let shown: number[];
  let names: FixedTokens;
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "troupe-shown-"));
    const path = join(folder, "model.gguf");
    await writeTinyModel(path, { seed: 1, lastTokens: [open, close] });
    tiny = await start(path);
    const { vocabulary } = tiny;
    shown = vocabulary.controlTokens.filter((token) => [open, close].includes(vocabulary.tokenText(token)));
    names = new FixedTokens(shown.map((token) => [vocabulary.tokenText(token), token] as const));
  });
  after(async () => {
    await tiny.host.dispose();
    await rm(folder, { recursive: true });
  });

  const source = (changes: Partial<CallConstraint>, tokens: readonly number[]): GrammarSource => ({
    ...translateOutput(calling({ specs: [time], syntax, ...changes })).source,
    shownTokens: tokens,
  });

  it("are forced for their names", async () => {
    assert.equal(shown.length, 2);
    const matcher = (await tiny.host.compile(source({}, shown))).open();
    const [first, ...others] = matcher.allowed().forced;
    assert.equal(tiny.vocabulary.tokenText(first!), open);
    assert.ok(others.length > 0 && others.every((token) => !tiny.vocabulary.isControl(token)));
    const rest = call("get_time", "{}").slice(textOf(others).length);
    for (const token of tiny.vocabulary.encode(rest)) {
      if (!matcher.allowed().forced.includes(token)) matcher.accept(token);
      if (matcher.allowed().forced.some((one) => tiny.vocabulary.tokenText(one) === close)) break;
    }
    const { forced, mask } = matcher.allowed();
    assert.equal(tiny.vocabulary.tokenText(forced.at(-1)!), close);
    assert.ok(tiny.ends.some((end) => allows(mask, end)));
    matcher.close();
  });

  it("may come in free text, and a well-formed call follows them", async () => {
    const matcher = (await tiny.host.compile(source({ required: false }, shown))).open();
    const [token] = names.split(open) as [number];
    assert.ok(allows(matcher.allowed().mask, token));
    matcher.accept(token);
    assert.match(textOf(matcher.allowed().forced), /^\{"name/);
    matcher.close();
  });

  it("stay out of every grammar that does not show them", async () => {
    const grammar = await tiny.host.compile(source({ required: false }, []));
    const mask = grammar.open().allowed().mask;
    assert.deepEqual(
      shown.map((token) => allows(mask, token)),
      [false, false],
    );
    const spelled = (await tiny.host.compile(source({}, []))).open().allowed().forced;
    assert.ok([...spelled].every((token) => !tiny.vocabulary.isControl(token)));
  });

  it("never are the tokens that end an answer", async () => {
    const grammar = await tiny.host.compile(source({}, [...shown, ...tiny.ends]));
    const { forced, mask } = grammar.open().allowed();
    assert.ok([...forced].every((token) => !tiny.ends.includes(token)));
    assert.deepEqual(
      tiny.ends.filter((end) => allows(mask, end)),
      [],
    );
  });

  it("are kept apart by set, for any number of sets", async () => {
    const { vocabulary, host } = tiny;
    const free = source({ required: false, specs: [{ ...time, name: "free" }] }, shown);
    const first = await host.compile(free);
    const sets = vocabulary.controlTokens.flatMap((a) => shown.map((b) => [a, b]));
    for (const tokens of sets) await host.compile({ ...free, shownTokens: tokens });
    const mask = first.open().allowed().mask;
    assert.ok(sets.length > 4 && shown.every((token) => allows(mask, token)));
    const one = (await host.compile({ ...free, shownTokens: [shown[1]!] })).open().allowed().mask;
    assert.deepEqual(
      shown.map((token) => allows(one, token)),
      [false, true],
    );
  });

  function textOf(tokens: Iterable<number>): string {
    return [...tokens].map((token) => tiny.vocabulary.tokenText(token)).join("");
  }
});
