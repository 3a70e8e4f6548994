// Owns the entry of the benchmarks: `npm run bench -- NAME [FLAGS]`. Each prints a table; with --save it also writes it to
// bench/results/ with date, machine and commit.
import { ServerError } from "../runtime/errors.ts";
import { main as engine } from "./engine/versus.ts";
import { main as memory } from "./memory/rounds.ts";
import { main as sampler } from "./sampler/bench.ts";
import { main as stream } from "./serving/stream.ts";

const benches: Readonly<Record<string, (argv: readonly string[]) => void | Promise<void>>> = {
  engine,
  memory,
  sampler,
  stream,
};

const [name = "", ...argv] = process.argv.slice(2);
const bench = benches[name];
try {
  if (!bench)
    throw new ServerError("config_invalid", `expected one of ${Object.keys(benches).join(", ")}; got "${name}"`);
  await bench(argv);
} catch (error) {
  console.error(error instanceof ServerError ? error.message : error);
  process.exit(1);
}
