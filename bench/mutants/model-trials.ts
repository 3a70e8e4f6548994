// Trials of models: a child process (model-process.ts) loads damaged models one after another. If the process ends, hangs or uses too
// much memory, this is the outcome of the current mutant, and a new process continues with the next one.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { ModelKind } from "../../test/fixtures/mutants/model-sources.ts";
import { residentKiB } from "../proc.ts";
import type { Outcome, Trials } from "./outcome.ts";

const program = fileURLToPath(new URL("./model-process.js", import.meta.url));
const watchMs = 100;
/** Number of mutants (damaged models) per process. It is limited, because their memory is freed only by a later garbage collection. */
const batch = 100;
/** Time limit for a mutant and for the start of the process, in ms; generous, because other programs may use the machine. */
const limitMs = 60_000;
const limitMiB = 2048;

/** Runs the trials in child processes, one process at a time, and passes each outcome to `tell`. */
export async function runModels(kind: ModelKind, trials: Trials, tell: (outcome: Outcome) => void): Promise<void> {
  const end = trials.first + trials.count;
  for (let next = trials.first; next < end; ) {
    next = await runBatch(kind, { ...trials, first: next, count: Math.min(batch, end - next) }, tell);
  }
}

/** Runs trials in one child process until it exits. Returns the number of the next mutant to run. */
async function runBatch(kind: ModelKind, { seed, first, count }: Trials, tell: (outcome: Outcome) => void) {
  const folder = mkdtempSync(join(tmpdir(), "troupe-mutants-"));
  const child = spawn(process.execPath, [program, folder, kind, String(seed), String(first), String(count)], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let next = first;
  let lastMs = performance.now();
  let reason: string | null = null;
  let errors = "";
  child.stderr.on("data", (data: Buffer) => {
    errors = `${errors}${data}`.slice(-500);
  });
  const lines = createInterface({ input: child.stdout });
  lines.on("line", (line) => {
    // Libraries print other lines to the same output.
    if (!line.startsWith("{")) return;
    const outcome = JSON.parse(line) as Outcome;
    tell(outcome);
    next = outcome.number + 1;
    lastMs = performance.now();
  });
  const watch = setInterval(() => {
    if (performance.now() - lastMs > limitMs) reason ??= `it takes longer than ${limitMs / 1000} s`;
    if (residentKiB(child.pid ?? 0) > limitMiB * 1024) reason ??= `it takes more than ${limitMiB} MiB`;
    if (reason !== null) child.kill("SIGKILL");
  }, watchMs);
  const signal = await new Promise<string>((resolve) => {
    child.once("close", (code, killedBy) => resolve(killedBy ?? `exit code ${code}`));
  });
  clearInterval(watch);
  rmSync(folder, { recursive: true, force: true });
  if (next >= first + count) return next;
  const detail = `${reason ?? signal} ${errors.trim()}`;
  // An exit code means an uncaught error, and `reason` means a hang or too much memory; both are violations. A crash in native code
  // ends the process by a signal, which a server survives.
  const isBroken = reason !== null || signal.startsWith("exit");
  tell({ number: next, name: kind, result: isBroken ? "broken" : "ended", detail, ms: performance.now() - lastMs });
  return next + 1;
}
