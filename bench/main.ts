// Owns the entry of the benchmarks: `npm run bench -- NAME [FLAGS]`. Each prints a table; with --save it also writes it to
// bench/results/ with date, machine and commit.
import arg from "arg";
import { ServerError } from "../runtime/errors.ts";

interface Bench {
  main(argv: readonly string[]): void | Promise<void>;
}

/** Each is loaded when it is asked for: some need native libraries, which not every node has. */
const benches: Readonly<Record<string, () => Promise<Bench>>> = {
  adapters: () => import("./adapters/main.ts"),
  engine: () => import("./engine/versus.ts"),
  hostile: () => import("./hostile/main.ts"),
  http: () => import("./http/bench.ts"),
  kernels: () => import("./kernels/bench.ts"),
  lifecycle: () => import("./lifecycle/main.ts"),
  load: () => import("./load/bench.ts"),
  memory: () => import("./memory/rounds.ts"),
  overload: () => import("./overload/main.ts"),
  oversubscribe: () => import("./oversubscribe/main.ts"),
  parity: () => import("./parity/bench.ts"),
  prefix: () => import("./prefix/main.ts"),
  sampler: () => import("./sampler/bench.ts"),
  scheduler: () => import("./scheduler/bench.ts"),
  serving: () => import("./serving/bench.ts"),
  smooth: () => import("./smooth/main.ts"),
  speculation: () => import("./speculation/main.ts"),
  stream: () => import("./serving/stream.ts"),
  structured: () => import("./structured/main.ts"),
};

// Leaving by process.exit lets a benchmark stop the servers it has started.
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

const [name = "", ...argv] = process.argv.slice(2);
const open = benches[name];
try {
  if (!open)
    throw new ServerError("config_invalid", `expected one of ${Object.keys(benches).join(", ")}; got "${name}"`);
  const bench = await open();
  await bench.main(argv);
} catch (error) {
  const isExpected = error instanceof ServerError || error instanceof arg.ArgError;
  console.error(isExpected ? error.message : error);
  process.exit(1);
}
