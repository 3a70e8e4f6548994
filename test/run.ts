// Test runner: `run.js [RING[/FOLDER[/FILE]]…]` runs the named rings (groups of tests, such as `unit`), or folders and files
// of rings; all rings by default. The fastest ring runs first. Prints failures immediately, then the slowest tests, and
// `N passed, N failed` as the last line.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, join, relative, resolve, sep } from "node:path";
import { pipeline } from "node:stream/promises";
import { run } from "node:test";
import { spec, type TestEvent } from "node:test/reporters";
import { fileURLToPath } from "node:url";

interface Ring {
  /** Folder of the ring's test files; for the ring `layers`, the path of its only file. */
  readonly path: string;
  /** Maximum duration of a test file in ms. A file that takes longer is killed and counts as failed. */
  readonly fileLimitMs: number;
  /** Number of files that run concurrently. */
  readonly concurrency: number;
  /**
   * Files and folders that measure times, relative to the ring's folder. They run first, one at a time, each beside one file that measures
   * none.
   */
  readonly timed?: readonly string[];
}

const minute = 60_000;
/** Number of files that run concurrently if one of them measures times, or if all compute. */
const fewFiles = 2;
/** Number of files that run concurrently if each starts threads and processes, and waits for a quarter of its time. */
const moreFiles = 3;
const rings: Readonly<Record<string, Ring>> = {
  layers: { path: "layers.test.ts", fileLimitMs: minute, concurrency: 1 },
  // One file more than cores, because some files wait for timers.
  unit: { path: "unit", fileLimitMs: 2 * minute, concurrency: availableParallelism() + 1 },
  threads: {
    path: "threads",
    fileLimitMs: 5 * minute,
    concurrency: moreFiles,
    timed: [
      ...["grammar/grammar-slow", "grammar/grammar-turns", "mcp/faults", "mcp/isolation", "mcp/official", "place"],
      ...["state/stored-readers", "task-pool", "text-tasks", "tools/hostile", "tools/restart", "tools/tools"],
      ...["web/reading"],
    ],
  },
  parity: { path: "parity", fileLimitMs: 10 * minute, concurrency: fewFiles },
  server: {
    path: "server",
    fileLimitMs: 10 * minute,
    concurrency: moreFiles,
    timed: [
      ...["ui/speed", "chaos", "engine", "everyday", "failure", "hostile", "lifecycle", "load-balancer/upgrade"],
      ...["overload", "replicas/faults"],
    ],
  },
};

const slowestShown = 5;
const slowestFilesShown = 20;
/** Durations of the finished test files. */
const fileDurations: { readonly name: string; readonly ms: number }[] = [];
/**
 * Signal of a process that V8 aborted because an internal check failed. JavaScript cannot cause it, but defects of Node 24 do
 * (docs/decisions.md). The file is run once more. Of the first run, only V8's message is printed.
 */
const v8Signal = "SIGTRAP";
const crashLinesShown = 40;
/** Files that were run again, as `file: what V8 said`. */
const runAgain: string[] = [];
const builtTests = fileURLToPath(new URL(".", import.meta.url));
const sourceTests = join(builtTests, "..", "..", "test");

/** Fields of node's test events that the runner uses. */
interface TestOutcome {
  readonly name: string;
  readonly file?: string | undefined;
  readonly skip?: string | boolean | undefined;
  readonly todo?: string | boolean | undefined;
  readonly details: {
    readonly duration_ms: number;
    readonly type?: string | undefined;
    readonly error?: Error | undefined;
  };
}

interface Tally {
  passed: number;
  failed: number;
  skipped: number;
  /** Failed tests, as `file: test: first line of the error`. Printed at the end, because CI logs are read from the end. */
  readonly failures: string[];
  readonly durations: { readonly name: string; readonly ms: number }[];
}

/**
 * Returns the compiled test files at these paths: of files and folders, each file once. Lists the sources, because dist/ may contain
 * files whose source was deleted.
 */
function filesAt(paths: readonly string[]): string[] {
  const names = paths.flatMap((path) => (path.endsWith(".ts") ? [path] : listTests(path)));
  return [...new Set(names)].map((name) => join(builtTests, name.replace(/\.ts$/, ".js"))).sort();
}

function listTests(folder: string): string[] {
  return readdirSync(join(sourceTests, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return listTests(path);
    return entry.name.endsWith(".test.ts") ? [path] : [];
  });
}

/** Runs the tests of a ring at these paths. */
async function runRing(name: string, ring: Ring, paths: readonly string[], tally: Tally): Promise<void> {
  const files = filesAt(paths);
  if (files.length === 0) return;
  const startMs = performance.now();
  process.stdout.write(
    `\n${name} (${files.length} ${files.length === 1 ? "file" : "files"}, Node ${process.version})\n`,
  );
  const counted = async function* () {
    for await (const event of eventsOf(files, ring)) {
      if (event.type === "test:pass" || event.type === "test:fail")
        count(event.type === "test:pass", event.data, tally);
      // Hides the totals that node prints for each file, because only the total of all files matters.
      const isTotal = event.type === "test:diagnostic" && event.data.nesting === 0;
      if (!isTotal) yield event;
    }
  };
  // Does not pipe into stdout: one pipe per ring would add listeners until node warns of a leak.
  await pipeline(counted, new spec(), async (printed) => {
    for await (const text of printed) process.stdout.write(text);
  });
  process.stdout.write(`${name}: ${((performance.now() - startMs) / 1000).toFixed(0)} s\n`);
}

/** Runs the files, up to `concurrency` of them concurrently. Yields the events of each file when the file has ended. */
async function* eventsOf(files: readonly string[], ring: Ring): AsyncGenerator<TestEvent> {
  const { path, timed = [], concurrency, fileLimitMs } = ring;
  const isTimed = (file: string): boolean => {
    const name = relative(join(builtTests, path), file);
    return timed.some((one) => name === `${one}.test.js` || name.startsWith(one + sep));
  };
  const waitingTimed = files.filter(isTimed);
  const waiting = files.filter((file) => !isTimed(file));
  const running = new Map<string, Promise<readonly [file: string, events: TestEvent[]]>>();
  const startMore = () => {
    for (;;) {
      const isTimedRunning = [...running.keys()].some(isTimed);
      const mostFiles = isTimedRunning || waitingTimed.length > 0 ? Math.min(fewFiles, concurrency) : concurrency;
      if (running.size >= mostFiles) return;
      const file = (isTimedRunning ? undefined : waitingTimed.shift()) ?? waiting.shift();
      if (file === undefined) return;
      running.set(
        file,
        runFile(file, fileLimitMs).then((events) => [file, events]),
      );
    }
  };
  startMore();
  while (running.size > 0) {
    const [file, events] = await Promise.race(running.values());
    running.delete(file);
    startMore();
    yield* events;
  }
}

async function runFile(file: string, limitMs: number): Promise<TestEvent[]> {
  const events = await runFileOnce(file, limitMs);
  const hasCrashed = events.some(({ type, data }) => type === "test:fail" && signalOf(data.details.error) === v8Signal);
  if (!hasCrashed) return events;
  const printed = events.flatMap((event) => (event.type === "test:stderr" ? event.data.message : [])).join("");
  const crash = printed
    .slice(Math.max(0, printed.lastIndexOf("# Fatal error in")))
    .split("\n")
    .filter((line) => line.trim() !== "")
    .slice(0, crashLinesShown);
  const reason = crash.find((line) => line.includes("Check failed")) ?? "V8 said nothing";
  runAgain.push(`${relative(builtTests, file)}: ${reason}`);
  process.stdout.write(`✖ ${file}: signal ${v8Signal}; it is run again\n${crash.join("\n")}\n`);
  return runFileOnce(file, limitMs);
}

/**
 * Runs one file in a separate process. After `limitMs`, kills that process and its descendants, because a surviving
 * descendant would keep the file's pipes open, so that the run would never end. Does not use the time limit of `run`,
 * because newer Node versions do not kill the process.
 */
async function runFileOnce(file: string, limitMs: number): Promise<TestEvent[]> {
  const events: TestEvent[] = [];
  const startMs = performance.now();
  const abort = new AbortController();
  const timer = setTimeout(() => {
    process.stdout.write(`✖ ${file}: killed after ${limitMs / 1000} s\n`);
    killTree(file);
    abort.abort();
  }, limitMs);
  for await (const event of run({ files: [file], signal: abort.signal }) as AsyncIterable<TestEvent>)
    events.push(event);
  clearTimeout(timer);
  fileDurations.push({ name: relative(builtTests, file), ms: performance.now() - startMs });
  return events;
}

/** Kills the process of a test file and its descendants. */
function killTree(file: string): void {
  const { stdout } = spawnSync("ps", ["-eo", "pid=,ppid=,args=", "-ww"], { encoding: "utf8" });
  const processes = stdout.split("\n").map((line) => {
    const [, pid, parent, args = ""] = /^\s*(\d+)\s+(\d+)\s(.*)$/.exec(line) ?? [];
    return { pid: Number(pid), parent: Number(parent), args };
  });
  const killed = processes.filter(({ args, parent }) => parent === process.pid && args.includes(file));
  for (const { pid } of killed) killed.push(...processes.filter(({ parent }) => parent === pid));
  for (const { pid } of killed) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // The process has already ended, so there is nothing to kill.
    }
  }
}

/** Counts tests but not suites. A file counts as one test only if it contains no tests. */
function count(passed: boolean, data: TestOutcome, tally: Tally): void {
  const { details, file, name } = data;
  const isOfChildrenAlone = details.type === "suite" && (passed || failureType(details.error) === "subtestsFailed");
  if (isOfChildrenAlone) return;
  const isWholeFile = file !== undefined && resolve(name) === file;
  if (isWholeFile && passed) process.stdout.write(`✖ ${name}: it ran no test\n`);
  // A file can fail although all its tests have passed, because its process crashed at the end.
  if (isWholeFile && !passed) process.stdout.write(`✖ ${name}: ${processEnd(details.error)}\n`);
  if (data.skip !== undefined || data.todo !== undefined) tally.skipped++;
  else if (passed && !isWholeFile) tally.passed++;
  else {
    tally.failed++;
    const reason = passed ? "ran no test" : isWholeFile ? processEnd(details.error) : firstLine(details.error);
    const test = isWholeFile ? "" : `${name}: `;
    tally.failures.push(`${file === undefined ? "" : `${relative(builtTests, file)}: `}${test}${reason}`);
  }
  tally.durations.push({ name: isWholeFile ? basename(name) : name, ms: details.duration_ms });
}

function showSlowest(title: string, durations: Tally["durations"], shown: number): void {
  const slowest = [...durations].sort((a, b) => b.ms - a.ms).slice(0, shown);
  if (slowest.length > 0) process.stdout.write(`\n${title}:\n`);
  for (const { name, ms } of slowest) process.stdout.write(`  ${(ms / 1000).toFixed(2)} s  ${name}\n`);
}

/** Returns how the process of a test file ended. */
function processEnd(error: Error | undefined): string {
  const { exitCode = null } = (error ?? {}) as { readonly exitCode?: unknown };
  const signal = signalOf(error);
  return signal === null ? `exit code ${exitCode}` : `signal ${signal}`;
}

/** Returns the signal that ended the process of a test file; null if none did. */
function signalOf(error: Error | undefined): unknown {
  return ((error ?? {}) as { readonly signal?: unknown }).signal ?? null;
}

function firstLine(error: Error | undefined): string {
  const { cause } = error ?? {};
  return (cause instanceof Error ? cause.message : String(error?.message)).split("\n", 1)[0] as string;
}

function failureType(error: Error | undefined): unknown {
  return error !== undefined && "failureType" in error ? error.failureType : undefined;
}

/** Returns the name of the ring of which an argument is the name or a folder or file (`server/edge`); null if there is no such path. */
function ringOf(argument: string): string | null {
  const name = argument.split("/")[0] as string;
  const ring = rings[name];
  return ring !== undefined && existsSync(join(sourceTests, pathOf(argument))) ? name : null;
}

/** Returns the path of an argument in the folder of tests. */
function pathOf(argument: string): string {
  return rings[argument]?.path ?? argument;
}

async function main(names: readonly string[]): Promise<void> {
  const unknown = names.find((name) => ringOf(name) === null);
  if (unknown !== undefined) {
    process.stderr.write(
      `expected ${Object.keys(rings).join(", ")}, or a folder or file of one of them; got "${unknown}"\n`,
    );
    process.exitCode = 2;
    return;
  }
  for (const { path, timed = [] } of Object.values(rings)) {
    const missing = timed.find(
      (one) => ![one, `${one}.test.ts`].some((name) => existsSync(join(sourceTests, path, name))),
    );
    if (missing !== undefined) throw new Error(`the list timed of ${path} names ${missing}, which does not exist`);
  }
  const tally: Tally = { passed: 0, failed: 0, skipped: 0, failures: [], durations: [] };
  const chosen = names.length === 0 ? Object.keys(rings) : names;
  for (const [name, ring] of Object.entries(rings)) {
    const paths = chosen.filter((argument) => ringOf(argument) === name).map(pathOf);
    await runRing(name, ring, paths, tally);
  }
  showSlowest("slowest files", fileDurations, slowestFilesShown);
  showSlowest("slowest", tally.durations, slowestShown);
  if (runAgain.length > 0) process.stdout.write(`\nended by V8 and run again:\n`);
  for (const crashed of runAgain) process.stdout.write(`  ${crashed}\n`);
  if (tally.failures.length > 0) process.stdout.write(`\nfailed:\n`);
  for (const failure of tally.failures) process.stdout.write(`  ✖ ${failure}\n`);
  const skipped = tally.skipped === 0 ? "" : `, ${tally.skipped} skipped`;
  process.stdout.write(`\n${tally.passed} passed, ${tally.failed} failed${skipped}\n`);
  if (tally.failed > 0 || tally.passed === 0) process.exitCode = 1;
}

await main(process.argv.slice(2));
// Exits explicitly, because a process that a test left behind may hold a pipe open and so keep the runner running.
process.exit();
