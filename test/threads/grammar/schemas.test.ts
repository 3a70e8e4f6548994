// Schema corpus on the real grammar engine: every complete text of allowed tokens matches its schema. Also contains cases
// that take too long for the unit tests of the schema translation.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { GrammarEngine } from "../../../engines/decoding/grammar/thread/library.ts";
import { pruned } from "../../../engines/text/constraints/ebnf/endings.ts";
import { schemaCheck } from "../../../engines/text/constraints/json-schema/check.ts";
import { type CompiledSchema, compileSchema } from "../../../engines/text/constraints/json-schema/rules/compile.ts";
import { type Translation, translateGrammar } from "../../../engines/text/constraints/translate.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { schemaCorpus } from "../../fixtures/schemas/corpus.ts";
import { type NamedSchema, when } from "../../fixtures/schemas/named-schema.ts";
import { RandomTexts, seeded } from "../../fixtures/schemas/random-text.ts";

const walks = 3;
const maxSteps = 400;
/** For each seed, the number of steps after which the random walk prefers tokens that close a JSON value, such as `"` or `}`. */
const openSteps = [8, 40, 120];

const encoder = new TextEncoder();
const closers = ['"', "}", "]", '"}', '"]', "}]", "0", '",'];
const words = [
  " ",
  ", ",
  ": ",
  '": "',
  '":',
  "\n  ",
  "the",
  "name",
  "true",
  "false",
  "null",
  "12",
  "3.5",
  "-",
  "ab",
  "Hello",
  "\\n",
  "\\u",
  "é",
  "中文",
  "😀",
  '{"',
  '["',
  "[{",
  "},",
  'd"',
  "international",
  "abcdefghijklmnopqrst",
];
/** Texts of the test vocabulary: every single byte, and texts that cross the boundaries between elements of a JSON text. */
const pieces: readonly Uint8Array[] = [
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...[...closers, ...words].map((word) => encoder.encode(word)),
  new Uint8Array(),
];
const end = pieces.length - 1;
const closing = new Set(
  closers.map((closer) => pieces.findLastIndex((piece) => Buffer.from(piece).toString() === closer)),
);

describe("a model that writes what a schema's grammar allows", () => {
  const log = { error: console.error, log: console.log };
  let engine: GrammarEngine;
  before(async () => {
    engine = await GrammarEngine.load(pieces, [end]);
  });
  after(() => Object.assign(console, log));

  it("ends with a matching value, for every accepted schema", async () => {
    const outcomes = { ended: 0, cut: 0, refused: 0 };
    const corpus = schemaCorpus();
    let taken = 0;
    for (const named of corpus) {
      const translation = translated(named);
      if (translation === null) continue;
      taken++;
      for (const outcome of await walked(engine, named, translation)) outcomes[outcome]++;
    }
    assert.ok(corpus.length >= 300 && taken >= corpus.length * 0.85, `${taken} of ${corpus.length} schemas are taken`);
    const { ended, cut, refused } = outcomes;
    assert.ok(ended > 900, `${ended} texts came to an end, ${cut} did not, ${refused} were found wrong afterwards`);
    assert.ok(refused <= 10, `${refused} texts were found wrong afterwards`);
  });

  for (const [min, max] of [
    [0, 40],
    [3, 20],
    [18, 18],
    [20, null],
    [2, 5],
  ] as const) {
    it(`may take each token that keeps a string within ${min} to ${max ?? "any number of"} characters, no other`, async () => {
      const schema = { type: "string", minLength: min, ...(max === null ? {} : { maxLength: max }) };
      const compiled = await engine.compile(translateGrammar({ kind: "json_schema", schema, field: "grammar" }).source);
      const upTo = max ?? "";
      const [open, whole] = [new RegExp(`^"[^"]{0,${upTo}}$`, "u"), new RegExp(`^"[^"]{${min},${upTo}}"$`, "u")];
      for (let seed = 1; seed <= 6; seed++)
        await assertMasks(engine, compiled, seed, (text) => open.test(text) || whole.test(text));
      compiled.dispose();
    });
  }
});

/** Feeds random tokens of whole characters. Asserts that the mask allows a token exactly if the text can continue or end after it. */
async function assertMasks(engine: GrammarEngine, compiled: Compiled, seed: number, isFine: (text: string) => boolean) {
  const matcher = await engine.match(compiled);
  const random = seeded(seed);
  let text = "";
  for (let step = 0; step < 30 && !matcher.isTerminated(); step++) {
    const allowed = allowedTokens(await matcher.getNextTokenBitmask());
    assert.deepEqual(
      allowed.filter((token) => plainTokens.includes(token)),
      plainTokens.filter((token) => isFine(text + textOf(token))),
      `after ${text}`,
    );
    const open = plainTokens.filter((token) => allowed.includes(token) && !textOf(token).includes('"'));
    const from = open.length > 0 && random() < 0.95 ? open : plainTokens.filter((token) => allowed.includes(token));
    const token = from[Math.floor(random() * from.length)];
    if (token === undefined) break;
    assert.ok(matcher.acceptToken(token));
    text += textOf(token);
  }
  matcher.dispose();
}

function textOf(token: number): string {
  return Buffer.from(pieces[token] as Uint8Array).toString();
}

/** Tokens of whole characters that need no escape in a JSON string. */
const plainTokens = pieces.flatMap((_, token) => {
  const text = textOf(token);
  return token === end || /[\\\ufffd\p{Cc}]/u.test(text) ? [] : [token];
});

describe("the translation of a schema", () => {
  it("derives only matching values, for every schema without a later check", () => {
    let count = 0;
    for (const { name, schema } of schemaCorpus()) {
      try {
        const compiled = compileSchema(schema);
        if (compiled.unchecked.length > 0) continue;
        assertMatching(name, schema, compiled);
        count++;
      } catch (thrown) {
        assert.ok(thrown instanceof ServerError, `${name}: ${thrown}`);
      }
    }
    assert.ok(count > 200, `${count} schemas`);
  });

  it("accepts or refuses schemas made to be slow in time", () => {
    const nested = (depth: number): unknown =>
      depth === 0 ? {} : { anyOf: [nested(depth - 1), { items: nested(depth - 1) }] };
    const hostile: Record<string, unknown> = {
      "choices of choices": {
        allOf: Array.from({ length: 40 }, (_, i) => ({
          anyOf: [{ minimum: i }, { maximum: -i }, { multipleOf: i + 2 }],
        })),
      },
      "deep nesting": nestedItems(90),
      "too deep": nestedItems(5000),
      "nested anyOf": nested(12),
      "an exploding pattern": { pattern: `^(a|b)*a${"(a|b)".repeat(20)}$` },
      "many patterns": {
        patternProperties: Object.fromEntries(
          Array.from({ length: 30 }, (_, i) => [`.*${i}.*${i + 1}`, { type: "string" }]),
        ),
      },
      "many exclusive branches": {
        oneOf: Array.from({ length: 60 }, (_, i) => ({ properties: { [`p${i}`]: { minimum: i } } })),
      },
      "many contains": {
        type: "array",
        allOf: Array.from({ length: 12 }, (_, i) => ({ contains: { const: i }, minContains: 20 })),
      },
      "a thousand properties, counted": {
        type: "object",
        properties: Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`p${i}`, true])),
        minProperties: 60,
      },
      "an endless number": { type: "number", minimum: 1e-300, multipleOf: 1e-9 },
      "nested conditions": {
        allOf: Array.from({ length: 30 }, (_, i) =>
          when({ required: [`a${i}`] }, { required: [`b${i}`] }, { required: [`c${i}`] }),
        ),
      },
      "large numbers": { type: "integer", minimum: 1e300, maximum: 1e308 },
    };
    for (const [name, schema] of Object.entries(hostile)) {
      const begin = performance.now();
      try {
        compileSchema(schema);
      } catch (thrown) {
        assert.ok(thrown instanceof ServerError, `${name}: ${(thrown as Error).stack}`);
      }
      const ms = performance.now() - begin;
      assert.ok(ms < 3000, `${name} took ${Math.round(ms)} ms`);
    }
  });
});

function assertMatching(name: string, schema: unknown, { rules }: CompiledSchema): void {
  const check = schemaCheck(schema);
  const texts = new RandomTexts(pruned(rules, "root")!);
  const random = seeded(7);
  for (const budget of [5, 20, 60, 150]) {
    const text = texts.text(random, budget);
    assert.equal(check(text), null, `${name}: ${text}`);
  }
}

function nestedItems(depth: number): unknown {
  let schema: unknown = {};
  for (let i = 0; i < depth; i++) schema = { items: schema };
  return schema;
}

function translated({ name, schema }: NamedSchema): Translation | null {
  try {
    return translateGrammar({ kind: "json_schema", schema, field: "grammar" });
  } catch (thrown) {
    assert.ok(thrown instanceof ServerError);
    assert.match(thrown.message, /\/\S+: .|contradict/, name);
    return null;
  }
}

async function walked(engine: GrammarEngine, { name, schema }: NamedSchema, { source, check }: Translation) {
  const compiled = await engine.compile(source);
  const validate = schemaCheck(schema);
  const outcomes: ("ended" | "cut" | "refused")[] = [];
  for (let seed = 0; seed < walks; seed++) {
    const text = await walk(engine, compiled, seed);
    const reason = text === null ? null : validate(text);
    if (reason !== null && check === null) assert.fail(`${name}: ${reason}: ${text}`);
    outcomes.push(text === null ? "cut" : reason === null ? "ended" : "refused");
  }
  compiled.dispose();
  return outcomes;
}

type Compiled = Awaited<ReturnType<GrammarEngine["compile"]>>;

/** Generates a text of random allowed tokens. Returns null if the text does not end within `maxSteps` tokens. */
async function walk(engine: GrammarEngine, compiled: Compiled, seed: number): Promise<string | null> {
  const matcher = await engine.match(compiled);
  const random = seeded(seed + 1);
  const bytes: number[] = [];
  try {
    for (let step = 0; step < maxSteps; step++) {
      const allowed = allowedTokens(await matcher.getNextTokenBitmask());
      assert.ok(allowed.length > 0, `nothing may follow ${Buffer.from(bytes)}`);
      const token = choose(allowed, random, step > (openSteps[seed] as number));
      assert.ok(matcher.acceptToken(token));
      if (token === end) return Buffer.from(bytes).toString();
      bytes.push(...(pieces[token] as Uint8Array));
    }
    return null;
  } finally {
    matcher.dispose();
  }
}

function allowedTokens(mask: Int32Array): number[] {
  return pieces.flatMap((_, token) => ((((mask[token >> 5] as number) >>> (token & 31)) & 1) === 1 ? [token] : []));
}

function choose(allowed: readonly number[], random: () => number, isLate: boolean): number {
  if (isLate && allowed.includes(end)) return end;
  const preferred = isLate ? allowed.filter((token) => closing.has(token)) : [];
  // Prefers ASCII tokens. Most single bytes begin a non-ASCII character, and texts of non-ASCII characters test little.
  const plain = allowed.filter((token) => token < 0x7f || token > 0xff);
  const from =
    preferred.length > 0 && random() < 0.9 ? preferred : plain.length > 0 && random() < 0.95 ? plain : allowed;
  return from[Math.floor(random() * from.length)] as number;
}
