// Grammars that compile slowly, on real grammar threads with the vocabulary of a real model: their effect on other
// requests.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Worker } from "node:worker_threads";
import { createGrammarHost, type GrammarHostOptions } from "../../../engines/decoding/grammar/host.ts";
import type { CompiledGrammar, GrammarHost } from "../../../engines/decoding/grammar/matcher.ts";
import { endOfGenerationTokens } from "../../../engines/files/gguf/end-of-generation.ts";
import { readModelMetadata } from "../../../engines/files/gguf/metadata.ts";
import type { GrammarSource } from "../../../engines/grammar-source.ts";
import { translateGrammar } from "../../../engines/text/constraints/translate.ts";
import { createVocabulary } from "../../../engines/text/tokenizer/vocabulary.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { realModel, tinyModel } from "../../fixtures/models/models.ts";
import { anAsker, answered } from "../../fixtures/text/grammars.ts";

interface Rig {
  readonly host: GrammarHost;
  /** `workers`: grammar threads that are running. `ready`: those of them that have finished starting. */
  readonly workers: ReadonlySet<Worker>;
  readonly ready: ReadonlySet<Worker>;
}

async function start(test: TestContext, path: string, options: Partial<GrammarHostOptions> = {}): Promise<Rig> {
  const { tokenizer } = await readModelMetadata(path);
  const vocabSize = createVocabulary(tokenizer).size;
  const workers = new Set<Worker>();
  const ready = new Set<Worker>();
  const watch = (worker: Worker) => {
    workers.add(worker);
    worker.on("message", ({ type }) => type === "ready" && ready.add(worker));
    worker.once("exit", () => [workers, ready].map((set) => set.delete(worker)));
  };
  process.on("worker", watch);
  const defaults = { modelPath: path, vocabSize, endOfGeneration: endOfGenerationTokens(tokenizer), maxMatchers: 64 };
  const host = createGrammarHost({ ...defaults, ...options });
  test.after(async () => {
    await host.dispose();
    process.off("worker", watch);
  });
  return { host, workers, ready };
}

/** Starts a rig and waits until its threads are ready, as they are after compiling their first grammars. */
async function startReady(test: TestContext, options: Partial<GrammarHostOptions> = {}): Promise<Rig> {
  const rig = await start(test, (await realModel()).path, options);
  await rig.host.compile(schema("first"), anAsker("first"));
  while (rig.ready.size < 2) await sleep(20);
  return rig;
}

const schema = (name: string): GrammarSource =>
  translateGrammar({
    kind: "json_schema",
    schema: { type: "object", properties: { [name]: { type: "integer" } }, required: [name] },
    field: "response_format",
  }).source;

/** Returns a grammar whose compile time grows with `parts`: about 20 s for 60 parts. */
function slowGrammar(parts: number, mark = ""): GrammarSource {
  const text = Array.from({ length: parts }, (_, i) => `[a-z ]{1,${i + 2}} "${mark}${i}"`).join(" ");
  return { kind: "ebnf", grammar: `root ::= ${text}`, param: "grammar" };
}

const isCode = (code: string) => (error: unknown) => error instanceof ServerError && error.code === code;

/** Returns the duration of a compilation in ms. */
async function timeOf(compiling: Promise<CompiledGrammar>): Promise<number> {
  const started = performance.now();
  await compiling;
  return performance.now() - started;
}

/**
 * Starts a compilation that can be aborted. Returns a function that aborts it, and a promise that resolves when the
 * compilation has failed with `cancelled`.
 */
function leaver({ host }: Rig, source: GrammarSource, client: string) {
  const controller = new AbortController();
  const asked = host.compile(source, { client, signal: controller.signal });
  const left = assert.rejects(asked, isCode("cancelled"));
  return { leave: () => controller.abort(), left };
}

describe("grammars that take long to compile", () => {
  it("are abandoned when their clients have left, and leave no thread behind", async (test) => {
    const rig = await startReady(test, { compileLimitMs: 60_000 });
    const before = rig.workers.size;
    for (let i = 0; i < 5; i++) {
      const { leave, left } = leaver(rig, slowGrammar(60, `${i}`), "impatient");
      await sleep(300);
      leave();
      await left;
    }
    const tookMs = await timeOf(rig.host.compile(schema("mine"), anAsker("another")));
    assert.ok(tookMs < 15_000, `${tookMs} ms`);
    await untilAtMost(rig, before);
  });

  it("do not delay small ones of other clients", async (test) => {
    const rig = await startReady(test, { compileLimitMs: 60_000 });
    const slow = ["a", "b"].map((client) => leaver(rig, slowGrammar(60, client), client));
    const times: number[] = [];
    for (let i = 0; i < 8; i++) {
      await sleep(200);
      times.push(await timeOf(rig.host.compile(schema(`field${i}`), anAsker(`client${i}`))));
    }
    times.sort((a, b) => a - b);
    assert.ok(times[4]! < 5000 && times[7]! < 20_000, `${times} ms`);
    assert.ok(rig.workers.size <= 4, `${rig.workers.size} threads`);
    for (const { leave } of slow) leave();
    await Promise.all(slow.map(({ left }) => left));
  });

  it("do not take the thread of a grammar in use", async (test) => {
    const compiled: string[] = [];
    const record = (worker: Worker) => {
      const post = worker.postMessage.bind(worker) as Worker["postMessage"];
      worker.postMessage = ((order: { type: string; source?: GrammarSource }, ...rest: []) => {
        if (order.type === "compile") compiled.push(order.source?.grammar ?? "");
        post(order, ...rest);
      }) as Worker["postMessage"];
    };
    process.on("worker", record);
    test.after(() => process.off("worker", record));
    const rig = await startReady(test, { compileLimitMs: 60_000 });
    const open = async (source: GrammarSource, client: string) => {
      const matcher = (await rig.host.compile(source, anAsker(client))).open();
      await answered(matcher);
      matcher.close();
    };
    const used = schema("used");
    for (let i = 0; i < 3; i++) await open(used, "mine");
    // The matcher of "other" runs on a different thread than the matchers of `used`, and makes its own thread the most recently used.
    await open(schema("other"), "other");
    const { leave, left } = leaver(rig, slowGrammar(60), "slow");
    await sleep(300);
    await open(used, "mine");
    leave();
    await left;
    assert.equal(compiled.filter((grammar) => grammar === used.grammar).length, 1);
  });

  it("are compiled one after another", async (test) => {
    const rig = await startReady(test);
    const sources = ["x", "y", "z"].map((mark) => slowGrammar(8, mark));
    const compiled = await Promise.all(sources.map((source, i) => rig.host.compile(source, anAsker(`client${i}`))));
    for (const grammar of compiled) {
      const matcher = grammar.open();
      await answered(matcher);
      assert.ok(matcher.allowed().mask.some((word) => word !== 0));
      matcher.close();
    }
  });

  it("are refused after a while, and at once when they come again", async (test) => {
    const rig = await startReady(test, { compileLimitMs: 3000 });
    const refused = { code: "invalid_value", param: "grammar", message: /takes more than 3 s/ };
    await assert.rejects(rig.host.compile(slowGrammar(60), anAsker()), refused);
    const workers = [...rig.workers];
    const started = performance.now();
    for (let i = 0; i < 50; i++) await assert.rejects(rig.host.compile(slowGrammar(60), anAsker(`${i}`)), refused);
    assert.ok(performance.now() - started < 1000);
    assert.deepEqual([...rig.workers], workers);
  });
});

describe("grammar threads that the system cannot start", () => {
  it("cost a request a retryable error; other grammars and matchers continue", async (test) => {
    const { tokenizer } = await readModelMetadata(await tinyModel());
    const endOfGeneration = [...endOfGenerationTokens(tokenizer)];
    // A function cannot be passed to a worker, so starting one throws at once, as it does when the system returns EAGAIN.
    const exhaust = () => endOfGeneration.push((() => 0) as unknown as number);
    const recover = () => endOfGeneration.pop();
    const rig = await start(test, await tinyModel(), { endOfGeneration });
    const failed = { code: "model_failed", retryable: true, message: /cannot be started .*try again/ };
    exhaust();
    for (const name of ["one", "one", "other"]) {
      await assert.rejects(rig.host.compile(schema(name), anAsker()), failed);
    }
    recover();
    const compiling = rig.host.compile(schema("one"), anAsker());
    // The thread for this compilation has been started, but no spare thread has been started.
    exhaust();
    const one = await compiling;
    const matcher = one.open();
    await answered(matcher);
    assert.ok(matcher.allowed().mask.some((word) => word !== 0));
    await assert.rejects(rig.host.compile(schema("other"), anAsker()), failed);
    await sleep(200);
    recover();
    await rig.host.compile(schema("other"), anAsker());
    matcher.close();
  });
});

describe("grammars that wait to be compiled", () => {
  it("are compiled for clients in turns", async (test) => {
    const rig = await start(test, await tinyModel());
    const order: string[] = [];
    const ask = async (client: string, mark: string) => {
      await rig.host.compile(schema(`${client}${mark}`), anAsker(client));
      order.push(client);
    };
    const many = Array.from({ length: 12 }, (_, i) => ask("many", `${i}`));
    await Promise.all([...many, ask("one", ""), ask("other", "")]);
    assert.ok(order.indexOf("one") <= 3 && order.indexOf("other") <= 5, order.join());
  });

  const full = (error: unknown) => isCode("queue_full")(error) && (error as ServerError).retryAfterSeconds! > 0;

  it("may all belong to one client, which is refused more until some leave", async (test) => {
    const rig = await start(test, await tinyModel(), { maxMatchers: 40 });
    const askers = Array.from({ length: 40 }, (_, i) => leaver(rig, schema(`greedy${i % 30}`), "greedy"));
    await assert.rejects(rig.host.compile(schema("more"), anAsker("greedy")), full);
    for (const { leave } of askers) leave();
    await Promise.all(askers.map(({ left }) => left));
    await rig.host.compile(schema("more"), anAsker("greedy"));
  });

  it("leave room for other clients, also if they share grammars with a greedy one", async (test) => {
    const rig = await start(test, await tinyModel(), { maxMatchers: 40 });
    const refused: string[] = [];
    const greedy = Array.from({ length: 40 }, async (_, i) => {
      // Half of the requests use the same grammar.
      const name = i % 2 === 0 ? "same" : `greedy${i}`;
      await rig.host.compile(schema(name), anAsker("greedy")).catch((error: unknown) => {
        assert.ok(full(error));
        refused.push(name);
      });
    });
    const clients = Array.from({ length: 10 }, (_, i) => `client${i}`);
    const others = clients.map((client, i) => rig.host.compile(schema(i === 0 ? "greedy39" : client), anAsker(client)));
    const compiled = await Promise.all(others);
    assert.ok(compiled.every((grammar) => typeof grammar.open === "function"));
    await Promise.all(greedy);
    assert.equal(refused.length, 10, "the newest of the client with most, one for each");
    assert.equal(refused.filter((name) => name === "same").length, 5);
  });

  it("leave room for the grammars of others, however long those of one client are", async (test) => {
    const rig = await start(test, await tinyModel());
    const long = (mark: string): GrammarSource => ({
      kind: "ebnf",
      grammar: `root ::= "${mark}"\n#${" ".repeat(10_000_000)}\n`,
    });
    const askers = ["a", "b", "c"].map((mark) => leaver(rig, long(mark), "greedy"));
    await assert.rejects(rig.host.compile(long("d"), anAsker("greedy")), full);
    askers.push(leaver(rig, long("e"), "another"));
    for (const { leave } of askers) leave();
    await Promise.all(askers.map(({ left }) => left));
  });

  it("are compiled once for all requests, also if some leave", async (test) => {
    const rig = await start(test, await tinyModel());
    const ahead = leaver(rig, schema("ahead"), "first");
    const first = leaver(rig, schema("same"), "first");
    const others = ["second", "third"].map((client) => rig.host.compile(schema("same"), anAsker(client)));
    first.leave();
    ahead.leave();
    await Promise.all([ahead.left, first.left]);
    const [second, third] = await Promise.all(others);
    assert.equal(second, third);
    await assert.rejects(
      rig.host.compile(schema("never"), { client: "gone", signal: AbortSignal.abort() }),
      isCode("cancelled"),
    );
  });
});

/** Waits until at most `count` threads are left. Idle threads end some seconds after their last work. */
async function untilAtMost({ workers }: Rig, count: number): Promise<void> {
  for (let i = 0; i < 100 && workers.size > count; i++) await sleep(100);
  assert.ok(workers.size <= count, `${workers.size} threads are left of ${count}`);
}
