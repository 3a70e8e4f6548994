// Owns the entry of the benchmarks: `npm run bench -- NAME [FLAGS]`. Each prints a table; with --save it also writes it to
// bench/results/ with date, machine and commit.
import arg from "arg";
import { ServerError } from "../runtime/errors.ts";
import { main as engine } from "./engine/versus.ts";
import { main as http } from "./http/bench.ts";
import { main as memory } from "./memory/rounds.ts";
import { main as overload } from "./overload/main.ts";
import { main as sampler } from "./sampler/bench.ts";
import { main as scheduler } from "./scheduler/bench.ts";
import { main as serving } from "./serving/bench.ts";
import { main as stream } from "./serving/stream.ts";

const benches: Readonly<Record<string, (argv: readonly string[]) => void | Promise<void>>> = {
  engine,
  http,
  memory,
  overload,
  sampler,
  scheduler,
  serving,
  stream,
};

// Leaving by process.exit lets a benchmark stop the servers it has started.
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

const [name = "", ...argv] = process.argv.slice(2);
const bench = benches[name];
try {
  if (!bench)
    throw new ServerError("config_invalid", `expected one of ${Object.keys(benches).join(", ")}; got "${name}"`);
  await bench(argv);
} catch (error) {
  const isExpected = error instanceof ServerError || error instanceof arg.ArgError;
  console.error(isExpected ? error.message : error);
  process.exit(1);
}
