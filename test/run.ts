// Owns running the tests: `run.js [ring…]`, all rings where none is named. Rings run cheapest first; failures are printed as
// they come, then the slowest tests, and last of all one line `N passed, N failed`. It knows nothing of what is tested.
import { existsSync, readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, join } from "node:path";
import { PassThrough, type Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { fileURLToPath } from "node:url";

interface Ring {
  /** Folder of its test files; the ring `layers` is one file. */
  readonly path: string;
  /** A file that takes longer is killed and counts as failed. */
  readonly fileLimitMs: number;
  readonly concurrency: number;
}

const minute = 60_000;
const rings: Readonly<Record<string, Ring>> = {
  layers: { path: "layers.test.ts", fileLimitMs: minute, concurrency: 1 },
  unit: { path: "unit", fileLimitMs: 2 * minute, concurrency: Math.max(1, availableParallelism()) },
  // These start workers and processes and measure times: one file after the other.
  threads: { path: "threads", fileLimitMs: 5 * minute, concurrency: 1 },
  parity: { path: "parity", fileLimitMs: 10 * minute, concurrency: 1 },
  server: { path: "server", fileLimitMs: 10 * minute, concurrency: 1 },
  ui: { path: "ui", fileLimitMs: 10 * minute, concurrency: 1 },
};

const slowestShown = 5;
const builtTests = fileURLToPath(new URL(".", import.meta.url));
const sourceTests = join(builtTests, "..", "..", "test");

interface Tally {
  passed: number;
  failed: number;
  skipped: number;
  readonly durations: { readonly name: string; readonly ms: number }[];
}

/** The compiled test files of a ring. Found from the sources, since dist/ keeps files whose source is gone. */
function filesOf(ring: Ring): string[] {
  const source = join(sourceTests, ring.path);
  if (!existsSync(source)) return [];
  const names = ring.path.endsWith(".ts") ? [ring.path] : listTests(ring.path);
  return names.map((name) => join(builtTests, name.replace(/\.ts$/, ".js"))).sort();
}

function listTests(folder: string): string[] {
  return readdirSync(join(sourceTests, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return listTests(path);
    return entry.name.endsWith(".test.ts") ? [path] : [];
  });
}

async function runRing(name: string, ring: Ring, tally: Tally): Promise<void> {
  const files = filesOf(ring);
  if (files.length === 0) return;
  process.stdout.write(`\n${name}: ${files.length} ${files.length === 1 ? "file" : "files"}\n`);
  const events = run({ files, concurrency: ring.concurrency, timeout: ring.fileLimitMs });
  for (const outcome of ["test:pass", "test:fail"] as const) {
    events.on(outcome, (data: TestOutcome) => count(outcome === "test:pass", data, files, tally));
  }
  await pipeline(events as Readable, new spec(), new PassThrough().on("data", (text) => process.stdout.write(text)));
}
