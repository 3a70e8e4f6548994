// Runner of the `troupe` command and other programs for benchmarks, and flags that benchmarks share.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import arg from "arg";
import type { EngineName } from "../engines/engine.ts";
import { defaultPackage } from "../engines/files/hub/catalog.ts";
import { resolveModel } from "../engines/files/hub/resolve-model.ts";
import { ServerError } from "../runtime/errors.ts";

const outputLimit = 64 * 1024 * 1024;
const run = promisify(execFile);

export const troupe = fileURLToPath(new URL("../../cli/troupe.mjs", import.meta.url));

/** Runs a program and returns its standard output. Rejects with its standard error if it fails. */
export async function output(program: string, args: readonly string[]): Promise<string> {
  const { stdout } = await run(program, [...args], { maxBuffer: outputLimit });
  return stdout;
}

export interface BenchFlags {
  readonly model: string;
  readonly rounds: number;
  readonly save: boolean;
}

/** Parses --model, --rounds and --save. */
export async function parseFlags(argv: readonly string[], defaultRounds: number): Promise<BenchFlags> {
  const flags = arg({ "--model": String, "--rounds": Number, "--save": Boolean }, { argv: [...argv] });
  const { path } = await resolveModel(flags["--model"] ?? defaultPackage);
  return {
    model: path,
    rounds: flags["--rounds"] ?? defaultRounds,
    save: flags["--save"] ?? false,
  };
}

/** Returns the engine that a flag names. Throws `config_invalid` if there is no such engine. */
export function engineName(name: string): EngineName {
  if (name === "llama" || name === "wasm") return name;
  throw new ServerError("config_invalid", `an engine is llama or wasm; got "${name}"`);
}
