// Grammars that match slowly, on real grammar threads with the vocabulary of a real model: their effect on other
// sequences.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Worker } from "node:worker_threads";
import { RequestPreparation } from "../../../actors/model/request-preparation.ts";
import { StepLoop } from "../../../actors/model/step/step-loop.ts";
import { createGrammarHost, type GrammarHostOptions } from "../../../engines/decoding/grammar/host.ts";
import type { GrammarHost, Matcher } from "../../../engines/decoding/grammar/matcher.ts";
import type { LoadedModel } from "../../../engines/engine.ts";
import { endOfGenerationTokens } from "../../../engines/files/gguf/end-of-generation.ts";
import { readModelMetadata } from "../../../engines/files/gguf/metadata.ts";
import type { GrammarSource } from "../../../engines/grammar-source.ts";
import { createVocabulary, type Vocabulary } from "../../../engines/text/tokenizer/vocabulary.ts";
import type { ServerError } from "../../../runtime/errors.ts";
import { createFakeEngine } from "../../fixtures/fakes/fake-engine.ts";
import { realModel } from "../../fixtures/models/models.ts";
import { generousLimits } from "../../fixtures/scheduling.ts";
import { anAsker, answered } from "../../fixtures/text/grammars.ts";
import { Frames, job } from "../../unit/actors/generation/rig.ts";
import { createUniform } from "../../unit/decoding/sampler/fixtures.ts";

interface Rig {
  readonly host: GrammarHost;
  readonly vocabulary: Vocabulary;
  readonly ends: readonly number[];
  /** Grammar threads that are running. */
  readonly workers: ReadonlySet<Worker>;
}

async function start(test: TestContext, options: Partial<GrammarHostOptions> = {}): Promise<Rig> {
  const { path } = await realModel();
  const { tokenizer } = await readModelMetadata(path);
  const vocabulary = createVocabulary(tokenizer);
  const ends = endOfGenerationTokens(tokenizer);
  const workers = new Set<Worker>();
  const watch = (worker: Worker) => {
    workers.add(worker);
    worker.once("exit", () => workers.delete(worker));
  };
  process.on("worker", watch);
  const defaults = { modelPath: path, vocabSize: vocabulary.size, endOfGeneration: ends, maxMatchers: 64 };
  const host = createGrammarHost({ ...defaults, ...options });
  test.after(async () => {
    await host.dispose();
    process.off("worker", watch);
  });
  return { host, vocabulary, ends, workers };
}

/** Grammar so ambiguous that matching the third long token of an output takes seconds. */
const ambiguous: GrammarSource = {
  kind: "ebnf",
  grammar: "root ::= r\nr ::= r r r | r r | [a-z ]",
  param: "grammar",
};
const words: GrammarSource = { kind: "ebnf", grammar: 'root ::= ([a-z]{2,6} " "){40} "end"' };

/** Returns a model that always prefers the longest token. */
function longestFirst({ vocabulary }: Rig): LoadedModel {
  const lengths = Float32Array.from({ length: vocabulary.size }, (_, token) => vocabulary.piece(token).length);
  const model = createFakeEngine({ vocabSize: vocabulary.size, sequenceTokens: 1 << 15, maxSequences: 8 });
  const step: LoadedModel["step"] = (batch) => {
    const output = model.step(batch);
    for (let at = 0; at < output.logits.length; at += vocabulary.size) output.logits.set(lengths, at);
    return output;
  };
  return { ...model, step };
}

/** Feeds the matcher random tokens that are words, until the text ends. */
async function followWords(rig: Rig, matcher: Matcher, seed: number): Promise<string> {
  const uniform = createUniform(seed);
  const pieces: Uint8Array[] = [];
  for (;;) {
    await answered(matcher);
    const { forced, mask } = matcher.allowed();
    for (const token of forced) pieces.push(rig.vocabulary.piece(token));
    const allowed = tokensIn(mask);
    const token = allowed[Math.floor(uniform() * allowed.length)]!;
    if (rig.ends.includes(token)) return Buffer.concat(pieces).toString();
    pieces.push(rig.vocabulary.piece(token));
    matcher.accept(token);
  }
}

/** Feeds tokens to the ambiguous grammar until the matcher fails. Returns the error. */
async function followToFailure(rig: Rig, matcher: Matcher): Promise<ServerError> {
  for (;;) {
    await answered(matcher);
    try {
      matcher.accept(longestAllowed(rig, matcher));
    } catch (error) {
      return error as ServerError;
    }
  }
}

/** Feeds tokens to the ambiguous grammar until a token mask takes a second. */
async function followUntilSlow(rig: Rig, matcher: Matcher): Promise<void> {
  for (;;) {
    const untilMs = performance.now() + 1000;
    while (!matcher.wait(0)) {
      if (performance.now() > untilMs) return;
      await sleep(2);
    }
    matcher.accept(longestAllowed(rig, matcher));
  }
}

function longestAllowed({ vocabulary }: Rig, matcher: Matcher): number {
  const length = (token: number) => vocabulary.piece(token).length;
  return tokensIn(matcher.allowed().mask).reduce((longest, token) => {
    return length(token) > length(longest) ? token : longest;
  });
}

function tokensIn(mask: Int32Array): number[] {
  const tokens: number[] = [];
  mask.forEach((word, i) => {
    for (let bits = word; bits !== 0; bits &= bits - 1) tokens.push(32 * i + 31 - Math.clz32(bits & -bits));
  });
  return tokens;
}

describe("a grammar that is slow to follow", () => {
  it("does not hold up the steps of others, and ends its own sequence with the reason", async (test) => {
    const rig = await start(test, { answerLimitMs: 1500 });
    const loop = new StepLoop(longestFirst(rig), { limits: generousLimits, frameIntervalMs: 0 });
    const intake = new RequestPreparation({ loop, grammars: rig.host, store: null });
    const running = loop.run();
    const [bystander, slow] = [new Frames(), new Frames()];
    loop.submit(bystander, [job(1, { maxNewTokens: 30_000 })]);
    await intake.submit(slow, [job(1, { maxNewTokens: 500, grammar: ambiguous })]);
    let longestGapMs = 0;
    let count = 0;
    let since = performance.now();
    while (slow.all.every(({ failed }) => failed.length === 0)) {
      await sleep(1);
      if (bystander.all.length === count) continue;
      count = bystander.all.length;
      longestGapMs = Math.max(longestGapMs, performance.now() - since);
      since = performance.now();
    }
    loop.stop();
    await running;
    assert.ok(longestGapMs < 700, `${longestGapMs} ms between two tokens`);
    const [failed] = slow.all.flatMap((frame) => frame.failed);
    assert.equal(failed?.error.code, "unsupported");
    assert.equal(failed?.error.param, "grammar");
    assert.match(failed?.error.message ?? "", /takes more than 1.5 s for one token; make it less ambiguous/);
    await assert.rejects(rig.host.compile(ambiguous, anAsker()), { code: "unsupported", param: "grammar" });
  });

  it("keeps its thread to itself: other outputs are unchanged", async (test) => {
    const rig = await start(test, { threads: 1 });
    const seeds = [1, 2, 3, 4, 5, 6];
    const grammar = await rig.host.compile(words, anAsker());
    const expected = await Promise.all(seeds.map((seed) => followWords(rig, grammar.open(), seed)));
    const slow = (await rig.host.compile(ambiguous, anAsker())).open();
    const started = performance.now();
    const failed = followToFailure(rig, slow).then((error) => ({ error, atMs: performance.now() }));
    const outputs: string[] = [];
    let endedMs = 0;
    for (let round = 0; round < 4; round++) {
      const matchers = seeds.map(() => grammar.open());
      outputs.push(...(await Promise.all(seeds.map((seed, i) => followWords(rig, matchers[i]!, seed)))));
      for (const matcher of matchers) matcher.close();
      endedMs = performance.now();
    }
    const { error, atMs } = await failed;
    slow.close();
    assert.deepEqual(outputs, [...expected, ...expected, ...expected, ...expected]);
    assert.equal(error.code, "unsupported");
    assert.ok(endedMs < atMs, `${endedMs - started} ms beside a grammar that failed after ${atMs - started} ms`);
  });

  it("leaves no thread behind when its sequence is cancelled", async (test) => {
    const rig = await start(test, { answerLimitMs: 60_000 });
    const grammar = await rig.host.compile(ambiguous, anAsker());
    await sleep(1500);
    const before = Math.max(rig.workers.size, 2);
    const matchers = [grammar.open(), grammar.open(), grammar.open()];
    await Promise.all(matchers.map((matcher) => followUntilSlow(rig, matcher)));
    for (const matcher of matchers) matcher.close();
    for (let i = 0; i < 150 && rig.workers.size > before; i++) await sleep(100);
    assert.ok(rig.workers.size <= before, `${rig.workers.size} threads of ${before}`);
    const other = (await rig.host.compile(words, anAsker())).open();
    await followWords(rig, other, 1);
  });
});
