// The schemas of the corpus through the real grammar engine: whatever a model picks of the tokens it is allowed, the finished
// text matches the schema.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { GrammarEngine } from "../../engines/grammar/library.ts";
import { schemaCheck } from "../../engines/grammar/schema/check.ts";
import { type Translation, translateGrammar } from "../../engines/grammar/translate.ts";
import { ServerError } from "../../runtime/errors.ts";
import { type NamedSchema, schemaCorpus } from "../fixtures/schemas/corpus.ts";
import { seeded } from "../fixtures/schemas/random-text.ts";

const walks = 3;
const maxSteps = 400;
/** From here on a walk takes the tokens that end things. */
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
];
/** Every byte, and what lies across the borders between the parts of a JSON text. */
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

  it("ends with a value that matches, for every schema that is taken", async () => {
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
});

function translated({ name, schema }: NamedSchema): Translation | null {
  try {
    return translateGrammar({ kind: "json_schema", schema });
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

/** A text of random tokens; null where it does not come to an end in time. */
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
  // Of single bytes most begin a character beyond ASCII, and texts of nothing else say little.
  const plain = allowed.filter((token) => token < 0x7f || token > 0xff);
  const from =
    preferred.length > 0 && random() < 0.9 ? preferred : plain.length > 0 && random() < 0.95 ? plain : allowed;
  return from[Math.floor(random() * from.length)] as number;
}
