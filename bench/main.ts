// Entry point of the benchmarks: `npm run bench -- NAME [FLAGS]`. A benchmark prints a table. With --save it also writes the
// table to bench/results/ with date, machine and commit.
import arg from "arg";
import { ServerError } from "../runtime/errors.ts";

interface Bench {
  /** What the benchmark measures, and its flags. */
  readonly usage: string;
  main(argv: readonly string[]): void | Promise<void>;
}

/**
 * Benchmarks by name. Each is imported only when requested, because some need native libraries that are not available on every
 * Node version.
 */
const benches: Readonly<Record<string, () => Promise<Bench>>> = {
  adapters: () => import("./adapters/main.ts"),
  agents: () => import("./agents/main.ts"),
  all: () => import("./all/main.ts"),
  browser: () => import("./browser/main.ts"),
  chaos: () => import("./chaos/main.ts"),
  choice: () => import("./choice/main.ts"),
  engine: () => import("./engine/versus.ts"),
  everyday: () => import("./everyday/main.ts"),
  fleet: () => import("./fleet/main.ts"),
  hostile: () => import("./hostile/main.ts"),
  http: () => import("./http/bench.ts"),
  kernels: () => import("./kernels/bench.ts"),
  lifecycle: () => import("./lifecycle/main.ts"),
  load: () => import("./load/bench.ts"),
  memory: () => import("./memory/rounds.ts"),
  mistralrs: () => import("./mistralrs/main.ts"),
  mutants: () => import("./mutants/main.ts"),
  overload: () => import("./overload/main.ts"),
  oversubscribe: () => import("./oversubscribe/main.ts"),
  parity: () => import("./parity/bench.ts"),
  prefix: () => import("./prefix/main.ts"),
  quantize: () => import("./quantize/main.ts"),
  remote: () => import("./remote/main.ts"),
  replicas: () => import("./replicas/main.ts"),
  sampler: () => import("./sampler/bench.ts"),
  scheduler: () => import("./scheduler/bench.ts"),
  serving: () => import("./serving/bench.ts"),
  smooth: () => import("./smooth/main.ts"),
  soak: () => import("./soak/main.ts"),
  images: () => import("./images/main.ts"),
  speech: () => import("./speech/main.ts"),
  speculation: () => import("./speculation/main.ts"),
  store: () => import("./store/main.ts"),
  stream: () => import("./serving/client/stream.ts"),
  structured: () => import("./structured/main.ts"),
  threads: () => import("./threads/main.ts"),
  tune: () => import("./tune/main.ts"),
  ui: () => import("./ui/main.ts"),
  vision: () => import("./vision/main.ts"),
};

// process.exit() runs exit handlers, so a benchmark can stop the servers that it has started.
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

try {
  const [name = "", ...argv] = process.argv.slice(2);
  await run(name, argv);
} catch (error) {
  const isExpected = error instanceof ServerError || error instanceof arg.ArgError;
  console.error(isExpected ? error.message : error);
  process.exit(1);
}

async function run(name: string, argv: readonly string[]): Promise<void> {
  const open = benches[name];
  const names = Object.keys(benches).join(", ");
  if (asksForHelp([name])) {
    process.stdout.write(`npm run bench -- NAME [FLAGS], or NAME --help\n\n  NAME  ${names}\n`);
    return;
  }
  if (open === undefined) throw new ServerError("config_invalid", `expected one of ${names}; got "${name}"`);
  const bench = await open();
  if (asksForHelp(argv)) process.stdout.write(bench.usage);
  else await bench.main(argv);
}

function asksForHelp(words: readonly string[]): boolean {
  return words.includes("--help") || words.includes("-h");
}
