// The entry of a grammar thread: compiles grammars and answers for matchers as it is asked. It never returns to its event loop:
// it sleeps on its control words and takes messages by hand, so that one wake-up serves many matchers. It ends with the
// first failure of the grammar engine, and with the thread that started it.
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { toErrorRecord } from "../../runtime/errors.ts";
import { Control } from "./control.ts";
import { type Compiled, Languages } from "./languages.ts";
import type { Matching } from "./matching.ts";
import type { WorkerOrder, WorkerReport, WorkerSetup } from "./messages.ts";
import { noToken, Sheet } from "./sheet.ts";

if (!parentPort) throw new Error("a grammar thread is a worker");
const port = parentPort;
const setup = workerData as WorkerSetup;
const control = new Control(setup.control);
const grammars = new Map<number, Compiled>();
const matchings = new Map<number, Matching>();
/** The grammar being compiled. */
let compiling: number | null = null;

const languages = await load();
if (languages) await serve(languages);
control.end();
for (const { sheet } of matchings.values()) sheet.rouse();

async function load(): Promise<Languages | null> {
  try {
    const languages = await Languages.load(setup);
    report({ type: "ready" });
    return languages;
  } catch (error) {
    report({ type: "unusable", error: toErrorRecord(error) });
    return null;
  }
}

/** Returns when the grammar engine has failed. */
async function serve(languages: Languages): Promise<void> {
  try {
    for (;;) {
      const seen = control.signal;
      const orders = await takeOrders(languages);
      const answers = await answerAll();
      if (orders + answers === 0) control.sleep(seen);
    }
  } catch (error) {
    report({ type: "failed", grammar: compiling, reason: languages.explain(error) });
  }
}

async function takeOrders(languages: Languages): Promise<number> {
  let count = 0;
  for (let received = receiveMessageOnPort(port); received; received = receiveMessageOnPort(port)) {
    await follow(received.message as WorkerOrder, languages);
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

async function follow(order: WorkerOrder, languages: Languages): Promise<void> {
  switch (order.type) {
    case "compile": {
      compiling = order.grammar;
      const grammar = await languages.compile(order.source);
      await tryOut(grammar);
      grammars.set(order.grammar, grammar);
      compiling = null;
      report({ type: "compiled", grammar: order.grammar, isFull: languages.isFull });
      return;
    }
    case "open": {
      control.current = order.matcher;
      const grammar = grammars.get(order.grammar);
      if (!grammar) throw new Error(`grammar ${order.grammar} is not compiled on this thread`);
      const matching = await grammar.match(new Sheet(order.sheet));
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
async function tryOut(grammar: Compiled): Promise<void> {
  const sheet = Sheet.create(setup.vocabSize);
  sheet.ask(noToken);
  const matching = await grammar.match(sheet);
  await matching.work();
  matching.dispose();
}

function report(message: WorkerReport): void {
  port.postMessage(message);
}
