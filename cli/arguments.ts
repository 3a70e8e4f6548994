// Owns reading the command line: the command, and its flags as text. Which flags there are comes from the table of keys;
// what their values mean is resolveConfig's work. Called by main.ts.
import arg from "arg";
import type { Flags } from "../runtime/config/given.ts";
import { entryOfFlag } from "../runtime/config/given.ts";
import { keyEntries } from "../runtime/config/keys.ts";
import { suggestion } from "../runtime/config/nearest.ts";
import { notSupportedYet, plannedFlags } from "../runtime/config/planned.ts";
import { ServerError } from "../runtime/errors.ts";

const commandNames = ["serve", "bench", "from-config"] as const;

/** A command as typed. `from-config` is the command its file names. */
export type CommandName = (typeof commandNames)[number];

const plannedCommands = [
  "run",
  "tune",
  "doctor",
  "quantize",
  "uqff",
  "login",
  "cache",
  "completions",
  "update",
  "uninstall",
];

/** The words that may stand before the flags, `serve text -m …`: the loader of the models. */
const kinds = ["auto", "text", "multimodal", "diffusion", "speech", "embedding"];

export interface CommandLine {
  /** null where none is named: the help is meant. */
  readonly command: CommandName | null;
  readonly flags: Flags;
  /** The file of `from-config -f`. */
  readonly file: string | null;
  readonly help: boolean;
  readonly version: boolean;
}

/** Throws config_invalid for anything it does not know. `argv` starts with the command. */
export function parseArguments(argv: readonly string[]): CommandLine {
  const [first, ...others] = argv;
  const command = first === undefined || first.startsWith("-") ? null : commandOf(first);
  const isFromConfig = command === "from-config";
  const { _: words, ...given } = parseFlags(command === null ? [...argv] : others, isFromConfig);

  const flags: Record<string, string | true | readonly string[]> = {};
  for (const { flag } of keyEntries) if (given[flag] !== undefined) flags[flag] = given[flag];
  const verbosity = given["-v"];
  if (verbosity !== undefined) setOnce(flags, "--log-level", verbosity === 1 ? "debug" : "trace", "-v");
  if (words[0] !== undefined) setOnce(flags, "--kind", kindOf(words), words[0]);

  const help = given["--help"] === true;
  const version = given["--version"] === true;
  const isAskingOnly = help || version;
  if (command === null && !isAskingOnly && Object.keys(given).length > 0) {
    throw invalid(`a command is expected before the flags: ${commandNames.join(", ")}; got none`);
  }
  const file = given["--file"];
  if (isFromConfig && typeof file !== "string" && !isAskingOnly) {
    throw invalid("from-config expects a TOML file: from-config -f FILE; got none");
  }
  return { command, flags, file: typeof file === "string" ? file : null, help, version };
}

/** Sets a flag by another name it has; `name` is what was typed. */
function setOnce(flags: Record<string, unknown>, flag: string, value: string, name: string): void {
  if (flags[flag] !== undefined) throw invalid(`"${name}" stands for ${flag} ${value}; give one of them, not both`);
  flags[flag] = value;
}

type Parsed = { readonly _: readonly string[]; readonly "-v"?: number } & Flags;

function parseFlags(argv: string[], isFromConfig: boolean): Parsed {
  const spec: arg.Spec = { "--help": Boolean, "-h": "--help", "--version": Boolean, "-v": arg.COUNT };
  for (const planned of plannedFlags) spec[planned] = arg.flag(refusePlanned);
  if (isFromConfig) Object.assign(spec, { "--file": String, "-f": "--file" });
  for (const { flag, key } of keyEntries) {
    if (key.fileOnly) continue;
    spec[flag] = key.shows === null ? Boolean : flag === "--model-id" ? [String] : String;
    if (key.alias !== undefined) spec[key.alias] = flag;
    refuseValueOfSwitch(argv, flag, key.shows === null);
  }
  try {
    // The spec above makes nothing but texts, lists of texts, `true` and the count.
    return arg(spec, { argv }) as unknown as Parsed;
  } catch (cause) {
    if (!(cause instanceof arg.ArgError)) throw cause;
    throw explain(cause, argv);
  }
}

function refusePlanned(_value: string, flag: string): never {
  throw invalid(notSupportedYet(flag));
}

/** `arg` drops what follows the `=` of a switch, so that `--cpu=false` would mean true. */
function refuseValueOfSwitch(argv: readonly string[], flag: string, isSwitch: boolean): void {
  const given = isSwitch ? argv.find((word) => word.startsWith(`${flag}=`)) : undefined;
  if (given !== undefined) throw invalid(`${flag} is a switch and takes no value; got "${given}"`);
}

/** `arg`'s complaint in our words: the flag, what it expects, and the nearest flag there is. */
function explain(error: InstanceType<typeof arg.ArgError>, argv: readonly string[]): ServerError {
  const named = /(-{1,2}[^\s=]+)/.exec(error.message.split(": ").slice(1).join(": "))?.[1] ?? argv.join(" ");
  if (error.code === "ARG_UNKNOWN_OPTION") {
    if (named.startsWith("--")) entryOfFlag(named);
    return invalid(`unknown flag "${named}"; see --help`);
  }
  const found = keyEntries.find(({ flag, key }) => flag === named || key.alias === named);
  const next = argv[argv.indexOf(named) + 1];
  const came = next === undefined || !argv.includes(named) ? "none" : `"${next}"`;
  return invalid(`${named} expects ${found?.key.expects ?? "a value"}; got ${came}`);
}

function commandOf(word: string): CommandName {
  const found = commandNames.find((name) => name === word);
  if (found !== undefined) return found;
  if (plannedCommands.includes(word)) throw invalid(notSupportedYet(word));
  throw invalid(`unknown command "${word}"${suggestion(word, [...commandNames, ...plannedCommands])}`);
}

function kindOf(words: readonly string[]): string {
  const stray = words.find((word, index) => index > 0 || !kinds.includes(word));
  if (stray === undefined) return words[0] ?? "auto";
  throw invalid(`unexpected "${stray}"; a model is named with -m, and everything else with a flag: see --help`);
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
