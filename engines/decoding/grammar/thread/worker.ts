// Entry point of a grammar thread: compiles grammars and computes token masks for matchers. The thread never returns to
// its event loop. Instead it sleeps on its control words and receives messages synchronously, so one wake-up serves
// many matchers. The thread ends at the first failure of the grammar engine, or when the thread that started it ends.
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { isOutOfDescriptors } from "../../../../runtime/descriptor-errors.ts";
import { ServerError, toErrorRecord } from "../../../../runtime/errors.ts";
import { ThreadClock, threadNumber } from "../../../../runtime/thread/system-thread.ts";
import { Control } from "./control.ts";
import { type Compiled, Languages } from "./languages.ts";
import { MatcherBuffer, noToken } from "./matcher-buffer.ts";
import type { Matching } from "./matching.ts";
import type { WorkerOrder, WorkerReport, WorkerSetup } from "./messages.ts";
import { WorkClock } from "./work-clock.ts";

type OrderOf<T extends WorkerOrder["type"]> = Extract<WorkerOrder, { type: T }>;

if (!parentPort) throw new Error("a grammar thread is a worker");
const port = parentPort;
const setup = workerData as WorkerSetup;
const control = new Control(setup.control);
const thread = threadNumber();
const threadClock = new ThreadClock(thread);
const clock = new WorkClock(workedMs);
const grammars = new Map<number, Compiled>();
const matchings = new Map<number, Matching>();
/**
 * Time in ms. If computing a token mask took longer, messages are processed before the next mask is computed, because
 * the next matcher may have been moved to another thread.
 */
const longAnswerMs = 20;
/** Id of the grammar that is being compiled; null: none. */
let compiling: number | null = null;

const languages = await load();
if (languages) await serve(languages);
control.end();
for (const { buffer } of matchings.values()) buffer.rouse();

async function load(): Promise<Languages | null> {
  try {
    const languages = await Languages.load(setup);
    report({ type: "ready", thread });
    return languages;
  } catch (error) {
    report({ type: "unusable", error: toErrorRecord(lackOf(error) ?? error) });
    return null;
  }
}

/** Returns the error of a start that failed for lack of memory or file descriptors; null for another reason. */
function lackOf(error: unknown): ServerError | null {
  const isMemory = error instanceof Error && /out of memory|could not allocate/i.test(error.message);
  if (!isMemory && !isOutOfDescriptors(error)) return null;
  const what = isMemory ? "too little memory" : "no free file descriptor";
  return new ServerError("model_failed", `a grammar thread could not start: there is ${what}; try again`);
}

/** Processes messages and computes token masks until the grammar engine fails. */
async function serve(languages: Languages): Promise<void> {
  try {
    for (;;) {
      const seen = control.signal;
      const orders = await takeOrders(languages);
      const answers = await answerAll();
      // In a web page, messages arrive in the event loop, and control.sleep() waits for them.
      if (orders + answers === 0) await control.sleep(seen);
    }
  } catch (error) {
    report({ type: "failed", grammar: compiling, reason: languages.explain(error) });
  }
}

/**
 * Processes the messages up to the first compilation, so that matchers get their masks between two compilations.
 * Returns the number of messages.
 */
async function takeOrders(languages: Languages): Promise<number> {
  let count = 0;
  for (let received = receiveMessageOnPort(port); received; received = receiveMessageOnPort(port)) {
    const order = received.message as WorkerOrder;
    await follow(order, languages);
    count++;
    if (order.type === "compile") break;
  }
  return count;
}

async function answerAll(): Promise<number> {
  let count = 0;
  for (const [matcher, matching] of matchings) {
    if (matching.buffer.isAnswered) continue;
    const tookMs = await timed(matcher, () => matching.work());
    // The processor time is read only after a long mask, because reading it takes about as long as a quick one.
    matching.answer(tookMs, tookMs <= longAnswerMs ? tookMs : clock.lap(tookMs));
    count++;
    if (tookMs <= longAnswerMs) continue;
    // Moves this matcher to the end, so that other matchers are served before its next mask.
    matchings.delete(matcher);
    matchings.set(matcher, matching);
    return count;
  }
  return count;
}

async function follow(order: WorkerOrder, languages: Languages): Promise<void> {
  switch (order.type) {
    case "compile":
      await compile(order, languages);
      return;
    case "open":
      await timed(order.matcher, () => open(order));
      return;
    case "close":
      matchings.get(order.matcher)?.dispose();
      matchings.delete(order.matcher);
      return;
    case "forget":
      grammars.get(order.grammar)?.dispose();
      grammars.delete(order.grammar);
  }
}

async function compile({ grammar, source }: OrderOf<"compile">, languages: Languages): Promise<void> {
  compiling = grammar;
  const startedMs = clock.read();
  await timed(grammar, async () => {
    const compiled = await languages.compile(source);
    await tryOut(compiled);
    grammars.set(grammar, compiled);
  });
  compiling = null;
  report({ type: "compiled", grammar, tookMs: clock.read() - startedMs, isFull: languages.isFull });
}

async function open({ matcher, grammar, buffer, history }: OrderOf<"open">): Promise<void> {
  const compiled = grammars.get(grammar);
  if (!compiled) throw new Error(`grammar ${grammar} is not compiled on this thread`);
  const matching = await compiled.match(new MatcherBuffer(buffer));
  matching.replay(history);
  matchings.set(matcher, matching);
}

/** Returns the processor time of this thread in ms; performance.now() if it is unknown. */
function workedMs(): number {
  return threadClock.read() ?? performance.now();
}

/**
 * Runs `work` and records `task` as the current work, so that the model's thread can check its duration. Returns the
 * duration in ms.
 */
async function timed(task: number, work: () => Promise<void>): Promise<number> {
  const started = performance.now();
  control.begin(task);
  await work();
  control.done();
  return performance.now() - started;
}

/**
 * Computes the first token mask of a new grammar as part of its compilation, because some grammars fail only at this
 * point.
 */
async function tryOut(grammar: Compiled): Promise<void> {
  const buffer = MatcherBuffer.create(setup.vocabSize);
  buffer.ask(noToken);
  const matching = await grammar.match(buffer);
  await matching.work();
  matching.dispose();
}

function report(message: WorkerReport): void {
  port.postMessage(message);
}
