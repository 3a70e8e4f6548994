// Flags of `bench hostile`, checked before any server starts.
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import arg from "arg";
import type { EngineName } from "../../engines/engine.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import type { EdgeName } from "../../http/server/listen.ts";
import { ServerError } from "../../runtime/errors.ts";
import { loadableEdges } from "../../test/fixtures/http-server.ts";
import { engineName } from "../command.ts";

export interface HostileOptions {
  readonly model: string;
  /** Folder of the built checkout whose server is attacked; null for this checkout. */
  readonly server: string | null;
  readonly directory: string;
  readonly nodeFlags: readonly string[];
  /** Heap limit of the server; null for Node's default. */
  readonly heapMiB: number | null;
  /**
   * HTTP server implementations to test. A probe whose result does not depend on the implementation runs only on the first one;
   * the same applies to engines.
   */
  readonly edges: readonly EdgeName[];
  readonly engines: readonly EngineName[];
  /** Selects the probes whose name contains one of these texts; null selects all probes. */
  readonly probes: readonly string[] | null;
  /** Runs every probe on every HTTP server implementation and engine. */
  readonly all: boolean;
  /** Number of random texts to send instead of the probes; null runs the probes. */
  readonly random: number | null;
  readonly seed: number;
  /** Number of fault rounds to run instead of the probes; null runs the probes. */
  readonly faults: number | null;
  readonly save: boolean;
}

export const usage = `npm run bench -- hostile [FLAGS]: effect of hostile clients and faults on the other clients

  --probe TEXT          run the probes whose names contain TEXT, in upper or lower case; repeatable; default: all
  --edge E --engine E   one HTTP server (uws, uws-compat, node), one engine (wasm, llama); default: all that work here
  --all                 run every probe on every HTTP server and engine, even if its result does not depend on them
  --random N --seed S   send N random grammars, schemas, regexes and templates instead
  --faults ROUNDS       rounds in which engines are killed and model files removed instead
  --server DIR          attack the server of another built checkout
  --heap MB             heap limit of the server
  --model ID --save
`;

export async function parseOptions(argv: readonly string[]): Promise<HostileOptions> {
  const flags = arg(
    {
      ...{ "--probe": [String], "--edge": String, "--engine": String, "--all": Boolean },
      ...{ "--random": Number, "--seed": Number, "--faults": Number, "--server": String, "--heap": Number },
      ...{ "--model": String, "--save": Boolean },
    },
    { argv: [...argv] },
  );
  const { path } = await resolveModel(flags["--model"] ?? defaultPackage);
  const engine = flags["--engine"];
  const heap = flags["--heap"];
  const server = flags["--server"] ?? null;
  return {
    model: path,
    server,
    directory: server === null ? fileURLToPath(new URL("../../../", import.meta.url)) : resolve(server),
    heapMiB: heap ?? null,
    nodeFlags: heap === undefined ? [] : [`--max-old-space-size=${heap}`],
    edges: edgesNamed(flags["--edge"]),
    engines: engine === undefined ? ["wasm", "llama"] : [engineName(engine)],
    probes: flags["--probe"] ?? null,
    all: flags["--all"] ?? false,
    random: flags["--random"] ?? null,
    seed: flags["--seed"] ?? 1,
    faults: flags["--faults"] ?? null,
    save: flags["--save"] ?? false,
  };
}

function edgesNamed(name: string | undefined): readonly EdgeName[] {
  const edges = loadableEdges();
  const named = name === undefined ? edges : edges.filter((edge) => edge === name);
  if (named.length > 0) return named;
  throw new ServerError("config_invalid", `--edge expects one of ${edges.join(", ")}; got "${name}"`);
}
