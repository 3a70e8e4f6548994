// Grammars on real grammar threads, with the vocabularies of a real and of a tiny model: masks, forced tokens, and
// isolation of one grammar from another.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { describe, it, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Worker } from "node:worker_threads";
import fc from "fast-check";
import type { GrammarHostOptions } from "../../../engines/decoding/grammar/host.ts";
import type { Matcher } from "../../../engines/decoding/grammar/matcher.ts";
import { endOfGenerationTokens } from "../../../engines/files/gguf/end-of-generation.ts";
import { readModelMetadata } from "../../../engines/files/gguf/metadata.ts";
import type { GrammarSource } from "../../../engines/grammar-source.ts";
import {
  choiceOf,
  type Expression,
  Rules,
  repeat,
  sequenceOf,
  set,
  text,
} from "../../../engines/text/constraints/ebnf/expressions.ts";
import { ebnfText } from "../../../engines/text/constraints/ebnf/writer.ts";
import { translateGrammar } from "../../../engines/text/constraints/translate.ts";
import { createVocabulary, type Vocabulary } from "../../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { charsOf } from "../../../runtime/regex/char-set.ts";
import { realModel, tinyModel } from "../../fixtures/models/models.ts";
import { answered, createPatientHost, type PatientHost } from "../../fixtures/text/grammars.ts";
import { endToken, withSentencePieceFile } from "../../unit/decoding/grammar/sentence-piece-file.ts";
import { createUniform } from "../../unit/decoding/sampler/fixtures.ts";

interface Rig {
  readonly host: PatientHost;
  readonly vocabulary: Vocabulary;
  readonly ends: readonly number[];
  readonly workers: readonly Worker[];
}

async function start(test: TestContext, path: string, options: Partial<GrammarHostOptions> = {}): Promise<Rig> {
  const { tokenizer } = await readModelMetadata(path);
  const ends = endOfGenerationTokens(tokenizer);
  const vocabulary = createVocabulary(tokenizer);
  const workers: Worker[] = [];
  const watch = (worker: Worker) => workers.push(worker);
  process.on("worker", watch);
  const defaults = { modelPath: path, vocabSize: vocabulary.size, endOfGeneration: ends, maxMatchers: 64 };
  const host = createPatientHost({ ...defaults, ...options });
  test.after(async () => {
    await host.dispose();
    process.off("worker", watch);
  });
  return { host, vocabulary, ends, workers };
}

const ebnf = (grammar: string): GrammarSource => ({ kind: "ebnf", grammar });
const schemaOf = (schema: object): GrammarSource =>
  translateGrammar({ kind: "json_schema", schema, field: "grammar" }).source;

/** Returns a grammar whose compile time grows with `parts`: several seconds for 20 parts with a real vocabulary. */
const slowGrammar = (parts: number): GrammarSource =>
  ebnf(`root ::= ${Array.from({ length: parts }, (_, i) => `[a-z ]{1,${i + 2}} "${i}"`).join(" ")}`);

/** Returns a grammar that allows exactly these texts. */
function oneOf(texts: readonly string[]): GrammarSource {
  return sourceOf(() => choiceOf(texts.map(text)));
}

function sourceOf(build: (rules: Rules) => Expression): GrammarSource {
  const rules = new Rules(1000, () => new Error("too many rules"));
  rules.define("root", build(rules));
  return ebnf(ebnfText(rules, "root") as string);
}

function tokensIn(mask: Int32Array): number[] {
  const tokens: number[] = [];
  mask.forEach((word, i) => {
    for (let bits = word; bits !== 0; bits &= bits - 1) tokens.push(32 * i + 31 - Math.clz32(bits & -bits));
  });
  return tokens;
}

/** Returns the bytes of the tokens as a string with one character per byte. */
function bytesOf(vocabulary: Vocabulary, tokens: Iterable<number>): string {
  return [...tokens].map((token) => Buffer.from(vocabulary.piece(token)).toString("latin1")).join("");
}

const binary = (text: string) => Buffer.from(text, "utf8").toString("latin1");
const textOf = (bytes: string) => Buffer.from(bytes, "latin1").toString("utf8");

interface Step {
  /** Bytes of the output so far, including those that the grammar forces next. */
  readonly bytes: string;
  readonly allowed: readonly number[];
}

/** Feeds the matcher with tokens chosen by `choose` until the text ends. Returns the bytes of the whole output. */
function walk(rig: Rig, matcher: Matcher, choose: (step: Step) => number, mostTokens = 400): string {
  let bytes = "";
  for (let count = 0; count < mostTokens; count++) {
    const { forced, mask } = matcher.allowed();
    bytes += bytesOf(rig.vocabulary, forced);
    const token = choose({ bytes, allowed: tokensIn(mask) });
    if (rig.ends.includes(token)) return bytes;
    bytes += bytesOf(rig.vocabulary, [token]);
    matcher.accept(token);
  }
  throw new Error(`no end after ${JSON.stringify(textOf(bytes))}`);
}

const isModelFailed = (error: unknown) => error instanceof ServerError && error.code === "model_failed";

/** Texts with common prefixes. Some end within a character, and some contain characters that JSON and grammars must escape. */
const fragments = [
  "a",
  "b",
  " ",
  "c",
  '"',
  "\\",
  "{",
  "}",
  ":",
  "é",
  "è",
  "日",
  "本",
  "名",
  "😀",
  "😁",
  "\n",
  "name",
  "the ",
];

/** An EBNF expression, and all texts that it matches. */
interface Sample {
  readonly build: (rules: Rules) => Expression;
  readonly texts: readonly string[];
}

const maxTexts = 60;
const longText = fc.array(fc.constantFrom(...fragments), { minLength: 1, maxLength: 8 }).map((parts) => parts.join(""));
const shortText = fc.string({ unit: fc.constantFrom("a", "b", "é", "è"), minLength: 1, maxLength: 4 });

const choices: fc.Arbitrary<Sample> = fc
  .uniqueArray(longText, { minLength: 1, maxLength: 5 })
  .map((texts) => ({ texts, build: () => choiceOf(texts.map(text)) }));

/** Expressions with few different characters, so that alternatives and repetitions often have common prefixes or suffixes. */
const { expressions } = fc.letrec<{ expressions: Sample }>((tie) => {
  const inner = tie("expressions");
  const build = (parts: readonly Sample[], rules: Rules) => parts.map((part) => part.build(rules));
  const following = (parts: readonly Sample[]) =>
    parts.reduce<string[]>((all, part) => all.flatMap((start) => part.texts.map((end) => start + end)), [""]);
  const bounded = (sample: fc.Arbitrary<Sample>) =>
    sample.map((one) => ({ ...one, texts: [...new Set(one.texts)] })).filter(({ texts }) => texts.length <= maxTexts);
  return {
    expressions: fc.oneof(
      { maxDepth: 3 },
      shortText.map((one) => ({ texts: [one], build: () => text(one) })),
      fc.uniqueArray(fc.constantFrom("a", "b", "é", "è", "日"), { minLength: 1 }).map((texts) => ({
        texts,
        build: () => set(charsOf(texts.join(""))),
      })),
      bounded(
        fc.array(inner, { minLength: 2, maxLength: 4 }).map((parts) => ({
          texts: parts.flatMap(({ texts }) => texts),
          build: (rules: Rules) => choiceOf(build(parts, rules)),
        })),
      ),
      bounded(
        fc.array(inner, { minLength: 2, maxLength: 3 }).map((parts) => ({
          texts: following(parts),
          build: (rules: Rules) => sequenceOf(build(parts, rules)),
        })),
      ),
      bounded(
        fc.tuple(inner, fc.nat({ max: 2 }), fc.nat({ max: 2 })).map(([part, min, more]) => ({
          texts: Array.from({ length: more + 1 }, (_, i) => following(Array(min + i).fill(part))).flat(),
          build: (rules: Rules) => repeat(part.build(rules), min, min + more),
        })),
      ),
      inner.map((part) => ({ ...part, build: (rules: Rules) => rules.add("named", part.build(rules)) })),
    ),
  };
});

describe("masks and forced tokens", () => {
  for (const [name, model] of [
    ["a real vocabulary", async () => (await realModel()).path],
    ["a tiny one", tinyModel],
  ] as const) {
    it(`are exactly the texts of the grammar, wherever characters are cut, with ${name}`, async (test) => {
      const rig = await start(test, await model());
      const pieces = Array.from({ length: rig.vocabulary.size }, (_, token) =>
        rig.vocabulary.isControl(token) ? "" : bytesOf(rig.vocabulary, [token]),
      );
      const check = async ({ build, texts }: Sample, seed: number): Promise<void> => {
        const uniform = createUniform(seed);
        const language = texts.map(binary);
        const matcher = (await rig.host.compile(sourceOf(build))).open();
        const output = walk(rig, matcher, ({ bytes, allowed }) => {
          const left = language.filter((one) => one.startsWith(bytes)).map((one) => one.slice(bytes.length));
          assert.ok(left.length > 0, "what is forced belongs to the grammar");
          const expected = new Set(left.includes("") ? rig.ends : []);
          pieces.forEach((piece, token) => {
            if (piece !== "" && left.some((one) => one.startsWith(piece))) expected.add(token);
          });
          assert.deepEqual(new Set(allowed), expected);
          return allowed[Math.floor(uniform() * allowed.length)]!;
        });
        matcher.close();
        assert.ok(language.includes(output));
      };
      // Choice of three texts for which the grammar engine by itself would also allow "aa"; see
      // engines/text/constraints/ebnf/factoring.ts.
      const merged = ["namea", "a日", "name日"];
      const example: [Sample, number] = [{ texts: merged, build: () => choiceOf(merged.map(text)) }, 0];
      await fc.assert(fc.asyncProperty(fc.oneof(choices, expressions), fc.nat(), check), {
        numRuns: 100,
        examples: [example],
      });
    });
  }

  it("make every output follow its schema", async (test) => {
    const rig = await start(test, (await realModel()).path);
    const schema = {
      type: "object",
      properties: {
        name: { type: "string" },
        age: { type: "integer" },
        tags: { type: "array", items: { enum: ["red", "green"] } },
      },
      required: ["name", "age", "tags"],
      additionalProperties: false,
    };
    const grammar = await rig.host.compile(schemaOf(schema));
    const uniform = createUniform(5);
    for (let round = 0; round < 8; round++) {
      const matcher = grammar.open();
      const output = walk(rig, matcher, ({ allowed }) => {
        const closing = allowed.filter((token) => /^["\]},]/.test(rig.vocabulary.tokenText(token)));
        const choices = closing.length > 0 && uniform() < 0.5 ? closing : allowed;
        return choices[Math.floor(uniform() * choices.length)]!;
      });
      matcher.close();
      const { name, age, tags } = JSON.parse(textOf(output));
      assert.equal(typeof name, "string");
      assert.ok(Number.isInteger(age));
      assert.ok(tags.every((tag: unknown) => tag === "red" || tag === "green"));
    }
  });

  it("force text without a choice, except a last token that could be longer", async (test) => {
    const rig = await start(test, (await realModel()).path);
    const encode = (text: string) => [...rig.vocabulary.encode(text)];
    const source = ebnf('root ::= "{\\"answer\\": " ("true" | "false") "}"');
    const matcher = (await rig.host.compile(source)).open();
    const first = matcher.allowed();
    const opening = encode('{"answer": ');
    assert.deepEqual([...first.forced], opening.slice(0, first.forced.length));
    assert.ok(first.forced.length >= opening.length - 1 && first.forced.length > 1);
    matcher.close();
    const fixed = (await rig.host.compile(ebnf('root ::= "Hello there" [.!]'))).open();
    assert.deepEqual([...fixed.allowed().forced], encode("Hello there"));
    assert.deepEqual(
      tokensIn(fixed.allowed().mask)
        .map((token) => rig.vocabulary.tokenText(token))
        .sort(),
      ["!", "."],
    );
    fixed.accept(encode("!")[0]!);
    assert.deepEqual([...fixed.allowed().forced], []);
    assert.deepEqual(tokensIn(fixed.allowed().mask), rig.ends);
    fixed.accept(rig.ends[0]!);
    assert.deepEqual(tokensIn(fixed.allowed().mask), rig.ends, "nothing but an end follows an end");
  });

  it("come in portions if much is forced", async (test) => {
    const rig = await start(test, await tinyModel());
    const text = "0123456789".repeat(20);
    const matcher = (await rig.host.compile(oneOf([text]))).open();
    assert.equal(matcher.allowed().forced.length, 64);
    assert.equal(
      walk(rig, matcher, ({ allowed }) => allowed[0]!),
      text,
    );
  });

  it("never allow a control token in text, nor a token beyond the vocabulary", async (test) => {
    const rig = await start(test, await tinyModel(), { vocabSize: 700 });
    for (const source of [ebnf("root ::= [^]*"), schemaOf({ type: "object" })]) {
      const matcher = (await rig.host.compile(source)).open();
      for (const token of [null, ...rig.vocabulary.encode('{"a')]) {
        if (token !== null && !matcher.allowed().forced.includes(token)) matcher.accept(token);
        const { mask } = matcher.allowed();
        assert.equal(mask.length, Math.ceil(700 / 32));
        const allowed = tokensIn(mask);
        assert.ok(allowed.every((token) => token < rig.vocabulary.size));
        assert.ok(allowed.every((token) => !rig.vocabulary.isControl(token) || rig.ends.includes(token)));
      }
    }
  });

  it("spell spaces and bytes as a SentencePiece vocabulary does", async (test) => {
    await withSentencePieceFile(async (path) => {
      const rig = await start(test, path, { endOfGeneration: [endToken] });
      const language = ["ab ab名", "ab 名前"];
      const outputs = new Set<string>();
      const grammar = await rig.host.compile(oneOf(language));
      for (let seed = 0; seed < 20; seed++) {
        const uniform = createUniform(seed * 7919);
        const pick = (allowed: readonly number[]) => allowed[Math.floor(uniform() * allowed.length)]!;
        outputs.add(textOf(walk(rig, grammar.open(), ({ allowed }) => pick(allowed))));
      }
      assert.deepEqual([...outputs].sort(), language);
      await rig.host.dispose();
    });
  });
});

describe("a grammar that fails", () => {
  it("costs one error, in the grammar engine's own words, and no live matcher", async (test) => {
    const rig = await start(test, await tinyModel());
    const matcher = (await rig.host.compile(oneOf(["good", "grand"]))).open();
    matcher.allowed();
    const refused = (source: GrammarSource, message: RegExp) =>
      assert.rejects(rig.host.compile(source), { code: "invalid_value", param: source.param, message });
    await Promise.all([
      refused({ ...ebnf('root ::= "a'), param: "grammar" }, /but EBNF lexer error at line 1/),
      refused({ ...ebnf("root ::= nope"), param: "response_format" }, /Rule "nope" is not defined/),
    ]);
    await rig.host.compile(oneOf(["still", "works"]));
    assert.equal(textOf(walk(rig, matcher, ({ allowed }) => allowed[0]!)).startsWith("g"), true);
  });

  it("is given up when it takes too long", async (test) => {
    const rig = await start(test, (await realModel()).path, { compileLimitMs: 200 });
    // Starts the thread first, because the time limit includes the start of a thread, which takes longer than the limit.
    await rig.host.compile(oneOf(["first"]));
    const refused = { code: "invalid_value", param: "grammar", message: /more than 0.2 s/ };
    await assert.rejects(rig.host.compile({ ...slowGrammar(100), param: "grammar" }), refused);
  });

  it("ends only its own matcher if it fails while matching", async (test) => {
    const rig = await start(test, await tinyModel(), { threads: 1 });
    const good = (await rig.host.compile(ebnf('root ::= "x" [0-9]+ "end" [.!]'))).open();
    const encode = (text: string) => [...rig.vocabulary.encode(text)];
    good.allowed();
    for (const token of encode("12")) good.accept(token);
    const before = tokensIn(good.allowed().mask);
    // After its first token, the grammar allows only one text, which never ends.
    const endless = (await rig.host.compile(ebnf('root ::= [xy] rest\nrest ::= "a" rest'))).open();
    endless.allowed();
    endless.accept(encode("x")[0]!);
    await answered(endless);
    assert.throws(() => endless.allowed(), isModelFailed);
    assert.throws(() => endless.accept(encode("a")[0]!), isModelFailed);
    assert.equal(endless.isReady, true);
    assert.deepEqual(tokensIn(good.allowed().mask), before);
    good.accept(encode("e")[0]!);
    assert.match(bytesOf(rig.vocabulary, good.allowed().forced), /^nd?$/);
  });

  it("refuses a token that it does not allow, without effect on others", async (test) => {
    const rig = await start(test, await tinyModel());
    const grammar = await rig.host.compile(oneOf(["ab", "cd"]));
    const [wrong, right] = [grammar.open(), grammar.open()];
    wrong.accept(rig.vocabulary.encode("d")[0]!);
    assert.throws(() => wrong.allowed(), isModelFailed);
    assert.ok(["ab", "cd"].includes(walk(rig, right, ({ allowed }) => allowed[0]!)));
  });
});

describe("the grammar host", () => {
  it("compiles a grammar once for two requests", async (test) => {
    const rig = await start(test, await tinyModel());
    const [first, second] = await Promise.all([rig.host.compile(oneOf(["one"])), rig.host.compile(oneOf(["one"]))]);
    assert.equal(first, second);
    assert.equal(await rig.host.compile(oneOf(["one"])), first);
    assert.notEqual(await rig.host.compile(oneOf(["two"])), first);
    assert.ok(rig.workers.length <= 2, "one has compiled it, one is spare");
  });

  it("compiles a dropped grammar again when it is opened", async (test) => {
    const rig = await start(test, await tinyModel(), { cacheLimit: 1 });
    const dropped = await rig.host.compile(oneOf(["one"]));
    await rig.host.compile(oneOf(["two"]));
    assert.equal(
      walk(rig, dropped.open(), ({ allowed }) => allowed[0]!),
      "one",
    );
  });

  it("follows more grammars at once than it has threads for matchers", async (test) => {
    const rig = await start(test, await tinyModel());
    const texts = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"];
    const matchers: Matcher[] = [];
    for (const text of texts) matchers.push((await rig.host.compile(oneOf([text]))).open());
    assert.ok(rig.workers.length <= 6, `${rig.workers.length} threads`);
    const outputs = matchers.map((matcher) => walk(rig, matcher, ({ allowed }) => allowed[0]!));
    assert.deepEqual(outputs, texts);
  });

  it("pauses a matcher only while its thread compiles", async (test) => {
    const rig = await start(test, await tinyModel(), { threads: 1, cacheLimit: 1 });
    const letter = rig.vocabulary.encode("a")[0]!;
    // After its first grammar, a thread compiles so quickly that it can serve other matchers between compilations.
    await rig.host.compile(ebnf("root ::= [a-z]{1,400}"));
    const big = await rig.host.compile(ebnf("root ::= [a-z]{1,500}"));
    const matcher = (await rig.host.compile(ebnf("root ::= [a-z]+"))).open();
    matcher.accept(letter);
    assert.equal(matcher.isReady, true, "the answer comes at once");
    matcher.allowed();
    const late = big.open();
    assert.equal(late.isReady, false, "its grammar has been dropped and is compiled again");
    assert.equal(matcher.isReady, true, "it has its answer");
    matcher.accept(letter);
    assert.equal(matcher.isReady, false);
    while (!matcher.isReady || !late.isReady) await turn();
    assert.ok(tokensIn(late.allowed().mask).length > 0);
  });

  for (const [name, end] of [
    ["ends", (worker: Worker) => worker.terminate()],
    ["ends unheard while the model's thread stands still", terminateUnheard],
  ] as const) {
    it(`moves matchers from a thread that ${name}`, async (test) => {
      const rig = await start(test, await tinyModel());
      const grammar = await rig.host.compile(ebnf('root ::= "go" [ab]+ [.!]'));
      const matchers = [grammar.open(), grammar.open()];
      const [a, b] = [..."ab"].map((text) => rig.vocabulary.encode(text)[0]!);
      const maskAfter = async (matcher: Matcher, token: number) => {
        matcher.accept(token);
        await answered(matcher);
        return tokensIn(matcher.allowed().mask);
      };
      const expected = [];
      for (const matcher of matchers) expected.push(await maskAfter(matcher, a!));
      await end(rig.workers[0]!);
      for (const [i, matcher] of matchers.entries()) assert.deepEqual(await maskAfter(matcher, b!), expected[i]);
    });
  }

  it("rejects, fails its matchers and leaves no thread if it is disposed while compiling", async (test) => {
    const rig = await start(test, await tinyModel());
    const grammar = await rig.host.compile(oneOf(["text"]));
    const matcher = grammar.open();
    matcher.accept(rig.vocabulary.encode("x")[0]!);
    const exits = rig.workers.map((worker) => new Promise((resolve) => worker.once("exit", resolve)));
    const compiling = [rig.host.compile(ebnf("root ::= [a-z]{1,200000}")), rig.host.compile(oneOf(["later"]))];
    const rejected = compiling.map((one) => assert.rejects(one, { code: "draining" }));
    await turn();
    await rig.host.dispose();
    await Promise.all([...rejected, ...exits]);
    await assert.rejects(rig.host.compile(oneOf(["after"])), { code: "draining" });
    assert.throws(() => grammar.open(), { code: "draining" });
    assert.throws(() => matcher.allowed(), ServerError);
    matcher.close();
  });

  it("says so if there is too little memory for a thread", async () => {
    const program = fileURLToPath(new URL("../../fixtures/text/grammar-program.js", import.meta.url));
    // 16 pages (1 MiB) are less than the grammar engine starts with.
    const { stdout } = await promisify(execFile)(process.execPath, ["--wasm-max-mem-pages=16", program]);
    assert.equal(stdout, "model_failed: a grammar thread could not start: there is too little memory; try again\n");
  });

  it("names the problem of a model file without a usable vocabulary", async (test) => {
    const { host } = await start(test, await tinyModel(), { modelPath: "/nowhere/model.gguf" });
    await assert.rejects(host.compile(oneOf(["text"])), /nowhere/);
  });
});

/** Terminates a worker without letting the event loop deliver its exit event. */
function terminateUnheard(worker: Worker): void {
  void worker.terminate();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
