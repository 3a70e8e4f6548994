// The entry of a grammar thread: compiles grammars and answers for matchers as it is asked. It never returns to its event loop:
// it sleeps on its control words and takes messages by hand, so that one wake-up serves many matchers. It ends with the
// first failure of the grammar engine, and with the thread that started it.
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import type { CompiledGrammar } from "@mlc-ai/web-xgrammar";
import { toErrorRecord } from "../../runtime/errors.ts";
import { Control } from "./control.ts";
import { GrammarEngine } from "./library.ts";
import { MaskedVocabulary } from "./masked-vocabulary.ts";
import { Matching } from "./matching.ts";
import type { WorkerOrder, WorkerReport, WorkerSetup } from "./messages.ts";
import { noToken, Sheet } from "./sheet.ts";

if (!parentPort) throw new Error("a grammar thread is a worker");
const port = parentPort;
const setup = workerData as WorkerSetup;
const control = new Control(setup.control);
const grammars = new Map<number, CompiledGrammar>();
const matchings = new Map<number, Matching>();
/** The grammar being compiled. */
let compiling: number | null = null;

const loaded = await load();
if (loaded) await serve(loaded);
control.end();
for (const { sheet } of matchings.values()) sheet.rouse();

interface Loaded {
  readonly vocabulary: MaskedVocabulary;
  readonly engine: GrammarEngine;
}

async function load(): Promise<Loaded | null> {
  try {
    const { modelPath, vocabSize, endOfGeneration } = setup;
    const vocabulary = await MaskedVocabulary.read(modelPath, vocabSize, endOfGeneration);
    const engine = await GrammarEngine.load(vocabulary.pieces, vocabulary.endTokens);
    report({ type: "ready" });
    return { vocabulary, engine };
  } catch (error) {
    report({ type: "unusable", error: toErrorRecord(error) });
    return null;
  }
}

/** Returns when the grammar engine has failed. */
async function serve(loaded: Loaded): Promise<void> {
  try {
    for (;;) {
      const seen = control.signal;
      const orders = await takeOrders(loaded);
      const answers = await answerAll();
      if (orders + answers === 0) control.sleep(seen);
    }
  } catch (error) {
    report({ type: "failed", grammar: compiling, reason: loaded.engine.explain(error) });
  }
}

async function takeOrders(loaded: Loaded): Promise<number> {
  let count = 0;
  for (let received = receiveMessageOnPort(port); received; received = receiveMessageOnPort(port)) {
    await follow(received.message as WorkerOrder, loaded);
    count++;
  }
  return count;
}

async function answerAll(): Promise<number> {
  let count = 0;
  for (const [matcher, matching] of matchings) {
    if (matching.sheet.isAnswered) continue;
    control.current = matcher;
    await matching.work();
    // First, or an end that comes later would be held to be this matcher's.
    control.current = 0;
    matching.answer();
    count++;
  }
  return count;
}

async function follow(order: WorkerOrder, { vocabulary, engine }: Loaded): Promise<void> {
  switch (order.type) {
    case "compile": {
      compiling = order.grammar;
      const grammar = await engine.compile(order.source);
      await tryOut(grammar, { vocabulary, engine });
      grammars.set(order.grammar, grammar);
      compiling = null;
      report({ type: "compiled", grammar: order.grammar, isFull: engine.isFull });
      return;
    }
    case "open": {
      control.current = order.matcher;
      const grammar = grammars.get(order.grammar);
      if (!grammar) throw new Error(`grammar ${order.grammar} is not compiled on this thread`);
      const matching = new Matching(await engine.match(grammar), vocabulary, new Sheet(order.sheet));
      matching.replay(order.history);
      matchings.set(order.matcher, matching);
      control.current = 0;
      return;
    }
    case "close":
      matchings.get(order.matcher)?.dispose();
      matchings.delete(order.matcher);
      return;
    case "forget":
      grammars.get(order.grammar)?.dispose();
      grammars.delete(order.grammar);
  }
}

/** The first answer of a new grammar belongs to compiling it: some fail only there. */
async function tryOut(grammar: CompiledGrammar, { vocabulary, engine }: Loaded): Promise<void> {
  const sheet = Sheet.create(setup.vocabSize);
  sheet.ask(noToken);
  const matching = new Matching(await engine.match(grammar), vocabulary, sheet);
  await matching.work();
  matching.dispose();
}

function report(message: WorkerReport): void {
  port.postMessage(message);
}
