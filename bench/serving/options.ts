// Flags of `bench serving`: one flat record of plain values, checked before any server starts.
import arg from "arg";
import { ServerError } from "../../runtime/errors.ts";
import { type EndpointName, endpointNamed } from "./target.ts";

export type LoadKind = { readonly kind: "clients" | "arrivals"; readonly amount: number };

/** Server that is already running. */
export interface GivenServer {
  readonly url: string;
  readonly pids: readonly number[];
}

export interface ServingOptions {
  /** Server to measure; null starts troupe. */
  readonly server: GivenServer | null;
  readonly peer: GivenServer | null;
  /** Model name in the requests; null uses the name that the server reports. */
  readonly model: string | null;
  readonly apiKey: string | null;
  readonly loads: readonly LoadKind[];
  /** Number of requests; null sends a few for each client. */
  readonly requests: number | null;
  readonly warmup: number | null;
  readonly rounds: number;
  readonly promptTokens: number;
  readonly sharedTokens: number;
  readonly maxTokens: number;
  readonly spread: number;
  readonly ignoreEos: boolean;
  readonly temperature: number;
  readonly endpoint: EndpointName;
  readonly seed: number;
  readonly json: string | null;
  readonly save: boolean;
  /** Options of the servers and programs that the benchmark starts. */
  readonly start: StartOptions;
}

export interface StartOptions {
  readonly modelFile: string | null;
  readonly peerProgram: string | null;
  readonly batchedBench: string | null;
  readonly threads: number;
  readonly context: number;
  readonly sequences: number;
  readonly flags: readonly string[];
  readonly peerFlags: readonly string[];
  /** Whether the servers and programs compute on the GPU. */
  readonly gpu: boolean;
  /** Whether to measure the event loop delay of troupe's main thread. */
  readonly frontDelay: boolean;
}

export const usage = `npm run bench -- serving [FLAGS]: load generator for any OpenAI-compatible server; can compare two servers

The servers: either already running
  --url URL --pid N[,N]            server to measure, and its processes for their memory
  --vs URL --vs-pid N[,N]          second server to compare with (peer); rounds alternate between the two
  --model NAME --api-key KEY       default: the first model of /v1/models, and no key
or started here, with equal settings
  --troupe-model FILE              GGUF file for troupe
  --peer-server PROGRAM            llama-server, with the same file
  --threads 2 --context 65536 --sequences 32
  --gpu                            compute on the GPU instead of the CPU
  --troupe-flags="..." --peer-flags="..."
  --front-delay                    measure the event loop delay of troupe's main thread, which slows it down a little
The load
  --concurrency 1,8,32             numbers of simultaneous clients, or
  --rate R[,R]                     Poisson arrivals per second
  --requests N --warmup N          requests of a round (default: 4 per client, at least 16), and before it (1 per client)
  --rounds 3 --seed 1
The requests
  --endpoint chat|responses|messages|completions|embeddings   the first three stream
  --prompt-tokens 64 --shared-prefix 0 --max-tokens 64 --ignore-eos --temperature 0
  --spread 0                       prompt and response lengths vary by this share of the mean; 0.5 = by half
The upper bound
  --batched-bench PROGRAM          llama-batched-bench, with --model-file FILE (default: --troupe-model)
The result
  --json FILE --save
`;

export function parseOptions(argv: readonly string[]): ServingOptions {
  const flags = arg(
    {
      ...{ "--url": String, "--vs": String, "--pid": String, "--vs-pid": String, "--model": String },
      ...{ "--api-key": String, "--concurrency": String, "--rate": String, "--requests": Number, "--warmup": Number },
      ...{ "--rounds": Number, "--seed": Number, "--endpoint": String, "--prompt-tokens": Number },
      ...{
        "--shared-prefix": Number,
        "--spread": Number,
        "--max-tokens": Number,
        "--ignore-eos": Boolean,
        "--temperature": Number,
      },
      ...{ "--troupe-model": String, "--peer-server": String, "--batched-bench": String, "--model-file": String },
      ...{ "--threads": Number, "--context": Number, "--sequences": Number, "--troupe-flags": String },
      ...{ "--peer-flags": String, "--gpu": Boolean, "--front-delay": Boolean, "--json": String, "--save": Boolean },
    },
    { argv: [...argv] },
  );
  const modelFile = flags["--troupe-model"] ?? flags["--model-file"] ?? null;
  const options: ServingOptions = {
    server: given(flags["--url"], "--pid", flags["--pid"]),
    peer: given(flags["--vs"], "--vs-pid", flags["--vs-pid"]),
    model: flags["--model"] ?? null,
    apiKey: flags["--api-key"] ?? null,
    loads: loads(flags["--concurrency"], flags["--rate"]),
    requests: flags["--requests"] ?? null,
    warmup: flags["--warmup"] ?? null,
    rounds: flags["--rounds"] ?? 3,
    promptTokens: flags["--prompt-tokens"] ?? 64,
    sharedTokens: flags["--shared-prefix"] ?? 0,
    maxTokens: flags["--max-tokens"] ?? 64,
    spread: flags["--spread"] ?? 0,
    ignoreEos: flags["--ignore-eos"] ?? false,
    temperature: flags["--temperature"] ?? 0,
    endpoint: endpointNamed(flags["--endpoint"] ?? "chat"),
    seed: flags["--seed"] ?? 1,
    json: flags["--json"] ?? null,
    save: flags["--save"] ?? false,
    start: {
      modelFile,
      peerProgram: flags["--peer-server"] ?? null,
      batchedBench: flags["--batched-bench"] ?? null,
      threads: flags["--threads"] ?? 2,
      context: flags["--context"] ?? 65_536,
      sequences: flags["--sequences"] ?? 32,
      flags: words(flags["--troupe-flags"]),
      peerFlags: words(flags["--peer-flags"]),
      gpu: flags["--gpu"] ?? false,
      frontDelay: flags["--front-delay"] ?? false,
    },
  };
  check(options);
  return options;
}

function check({ server, peer, start, spread }: ServingOptions): void {
  if (!(spread >= 0 && spread < 1)) {
    throw new ServerError("config_invalid", `--spread expects a share from 0 to below 1; got ${spread}`);
  }
  const needsFile = server === null || start.peerProgram !== null || start.batchedBench !== null;
  if (needsFile && start.modelFile === null) {
    throw new ServerError("config_invalid", `expected --url, or --troupe-model; got neither\n\n${usage}`);
  }
  if (peer && start.peerProgram)
    throw new ServerError("config_invalid", "--vs and --peer-server both name a peer: use one");
}

function given(url: string | undefined, pidFlag: string, pids: string | undefined): GivenServer | null {
  return url === undefined ? null : { url, pids: pids === undefined ? [] : numbers(pidFlag, pids) };
}

function loads(concurrency: string | undefined, rate: string | undefined): LoadKind[] {
  if (concurrency !== undefined && rate !== undefined) {
    throw new ServerError("config_invalid", "--concurrency and --rate are two kinds of load: use one");
  }
  if (rate !== undefined) return numbers("--rate", rate).map((amount) => ({ kind: "arrivals", amount }));
  return numbers("--concurrency", concurrency ?? "1,8,32").map((amount) => ({ kind: "clients", amount }));
}

function numbers(flag: string, text: string): number[] {
  const values = text.split(",").map(Number);
  if (values.every((value) => value > 0)) return values;
  throw new ServerError("config_invalid", `${flag} expects numbers above 0, split by commas; got "${text}"`);
}

/** Returns the flags in the value of one flag, split at spaces. */
export function words(text: string | undefined): string[] {
  return text === undefined ? [] : text.split(/\s+/).filter((part) => part !== "");
}
