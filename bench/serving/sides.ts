// Comparison of two or three servers ("sides") that run the same model with equal sizes, in alternating rounds. Also contains
// the flags that such benchmarks share.
import { setTimeout as sleep } from "node:timers/promises";
import type arg from "arg";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { words } from "./options.ts";
import { type RunningServer, startPeer, startTroupe } from "./servers.ts";

export const sideFlags = {
  "--model": String,
  "--threads": Number,
  "--rounds": Number,
  "--troupe-flags": String,
  "--peer-server": String,
  "--peer-flags": String,
  "--save": Boolean,
} as const;

/** Usage text of the shared flags. */
export const sideUsage = `  --peer-server PROGRAM llama-server to compare with
  --troupe-flags="..." --peer-flags="..."
  --model ID --threads 2 --rounds N --save
`;

/**
 * Pause before each measurement, because llama-server's threads spin for about 200 ms after its last token on cores that the
 * next server needs.
 */
export const restMs = 500;

export interface SideOptions {
  readonly model: string;
  readonly threads: number;
  readonly rounds: number;
  readonly flags: readonly string[];
  /** Path of a llama-server to compare with; null for none. */
  readonly peerProgram: string | null;
  readonly peerFlags: readonly string[];
  readonly save: boolean;
}

export async function sideOptions(flags: arg.Result<typeof sideFlags>, defaultRounds: number): Promise<SideOptions> {
  const { path } = await resolveModel(flags["--model"] ?? defaultPackage);
  return {
    model: path,
    threads: flags["--threads"] ?? 2,
    rounds: flags["--rounds"] ?? defaultRounds,
    flags: words(flags["--troupe-flags"]),
    peerProgram: flags["--peer-server"] ?? null,
    peerFlags: words(flags["--peer-flags"]),
    save: flags["--save"] ?? false,
  };
}

export interface Sizes {
  /** Maximum number of simultaneous sequences. */
  readonly sequences: number;
  /** Tokens in the KV cache for each sequence. */
  readonly tokensEach: number;
}

export interface SideStart {
  readonly label: string;
  start(): Promise<RunningServer>;
}

export interface Side {
  readonly label: string;
  readonly url: URL;
}

export function ours(options: SideOptions, sizes: Sizes, label = "ours", flags: readonly string[] = []): SideStart {
  const settings = { ...settingsOf(options, sizes), flags: [...options.flags, ...flags] };
  return { label, start: () => startTroupe(settings) };
}

/**
 * Returns a list with the llama-server to start, with its store of past prompts enabled; an empty list if the options do not
 * name a llama-server.
 */
export function peers(options: SideOptions, sizes: Sizes, flags: readonly string[] = []): SideStart[] {
  const { peerProgram, peerFlags } = options;
  if (peerProgram === null) return [];
  const settings = { ...settingsOf(options, sizes), flags: ["--cache-ram", "8192", ...flags, ...peerFlags] };
  return [{ label: "peer", start: () => startPeer(peerProgram, settings) }];
}

function settingsOf({ model, threads }: SideOptions, { sequences, tokensEach }: Sizes) {
  return { model, threads, sequences, context: sequences * tokensEach };
}

/** Starts the servers in the order of `starts`, runs `work` while all are up, and stops them. */
export async function withSides<T>(
  starts: readonly SideStart[],
  work: (sides: readonly [Side, ...Side[]]) => Promise<T>,
): Promise<T> {
  const running: RunningServer[] = [];
  const up = async ({ label, start }: SideStart): Promise<Side> => {
    const server = await start();
    running.push(server);
    return { label, url: new URL(server.url) };
  };
  try {
    const [first, ...others] = starts;
    if (!first) throw new Error("no server to start");
    const sides: [Side, ...Side[]] = [await up(first)];
    for (const other of others) sides.push(await up(other));
    return await work(sides);
  } finally {
    await Promise.all(running.map((server) => server.stop()));
  }
}

/**
 * Measures every server with each input. Returns each server's measurements in the order of the inputs. Each round begins with
 * a different server, so that no server is always first. A pause precedes each measurement, because the threads of the previous
 * server spin for some time.
 */
export async function inRounds<S extends { readonly label: string }, Input, T>(
  name: string,
  sides: readonly S[],
  inputs: readonly Input[],
  measure: (side: S, input: Input) => Promise<T>,
): Promise<T[][]> {
  const measured: T[][] = sides.map(() => []);
  for (const [round, input] of inputs.entries()) {
    for (let turn = 0; turn < sides.length; turn++) {
      const index = (round + turn) % sides.length;
      const side = sides[index] as S;
      process.stderr.write(`${name}, round ${round + 1} of ${inputs.length}, ${side.label}\n`);
      await sleep(restMs);
      measured[index]?.push(await measure(side, input));
    }
  }
  return measured;
}
