// Command line: parses the command and its flags, with flag values as text. The table of keys defines the flags; resolveConfig
// checks their values.
import arg from "arg";
import { ServerError } from "../runtime/errors.ts";
import { suggestion } from "../runtime/nearest.ts";
import { entryOfFlag, type Flags } from "./config/given.ts";
import { keyEntries } from "./config/keys.ts";
import { withoutTokens } from "./config/kinds.ts";
import { foreignCommands, refuseForeignFlags } from "./foreign-flags.ts";

const commandNames = ["serve", "run", "agent", "bench", "tune", "from-config"] as const;

/**
 * Command that takes settings. `from-config` runs the command that its settings file names. `agent` is `run` with tools; the
 * word after `agent` is the task.
 */
export type CommandName = (typeof commandNames)[number];

const toolNames = ["models", "cache", "quantize", "uqff", "login", "doctor", "completions"] as const;

/** Command without settings (a "tool"). It parses its own arguments. */
export type ToolName = (typeof toolNames)[number];

const plannedCommands = ["update", "uninstall"];
const everyCommand = [...commandNames, ...toolNames, ...plannedCommands, "help"];

/** Flags that give a model tools. */
const toolFlags = ["--agent", "--enable-code-execution", "--enable-shell", "--enable-search"];

/** Values of `--kind`. A kind may also be a separate word before the flags: `serve text -m …`. */
export const modelKinds = ["auto", "text", "multimodal", "diffusion", "speech", "embedding"];

export interface CommandLine {
  /**
   * Command to run; `serve` if none is given. null if a command without settings runs, or if the help or version is requested
   * without a command.
   */
  readonly command: CommandName | null;
  /** Command without settings, and its arguments, which it parses itself. If set, all other fields are empty. */
  readonly tool: { readonly name: ToolName; readonly args: readonly string[] } | null;
  readonly flags: Flags;
  /** Settings file, from `from-config -f`; null if there is none. */
  readonly file: string | null;
  readonly help: boolean;
  /** Whether the help lists all flags, not only the everyday ones. */
  readonly all: boolean;
  readonly version: boolean;
}

/** Parses the arguments; the first one is the command. Throws config_invalid for unknown commands, flags and other words. */
export function parseArguments(argv: readonly string[]): CommandLine {
  const words = argv[0] === "help" ? [...argv.slice(1), "--help"] : argv;
  const [first, ...others] = words;
  const tool = toolNames.find((name) => name === first);
  const nothing = { command: null, tool: null, flags: {}, file: null, help: false, all: false, version: false };
  if (tool !== undefined) return { ...nothing, tool: { name: tool, args: others } };

  const named = first === undefined || first.startsWith("-") ? null : commandOf(first);
  const isFromConfig = named === "from-config";
  const given = parseFlags(named === null ? words : others, isFromConfig);
  const help = given["--help"] === true;
  const version = given["--version"] === true;
  const isAskingOnly = help || version;
  const all = given["--all"] === true;
  if (all && !help) throw invalid("--all expects --help: it lists all flags of a command");
  const file = given["--file"];
  if (isFromConfig && typeof file !== "string" && !isAskingOnly) {
    throw invalid("from-config expects a TOML file: from-config -f FILE; got none");
  }
  return {
    ...nothing,
    command: named ?? (isAskingOnly ? null : "serve"),
    flags: flagsOf(given, named),
    file: typeof file === "string" ? file : null,
    help,
    all,
    version,
  };
}

/** Returns the flags that set keys, with their values. A flag given under another name is returned under its main name. */
function flagsOf(given: Parsed, command: CommandName | null): Flags {
  const flags: Record<string, string | true | readonly string[]> = {};
  for (const { flag } of keyEntries) if (given[flag] !== undefined) flags[flag] = given[flag];
  const verbosity = given["-v"];
  if (verbosity !== undefined) setOnce(flags, "--log-level", verbosity === 1 ? "debug" : "trace", "-v");
  if (command === "agent" && !hasTools(flags)) flags["--agent"] = true;
  setWord(flags, given._, command);
  return flags;
}

function hasTools(flags: Flags): boolean {
  return toolFlags.some((flag) => flags[flag] !== undefined);
}

/** Sets the flag for a positional word: the task of `agent`, the folder of `run --agent`, or the kind of the model. */
function setWord(
  flags: Record<string, string | true | readonly string[]>,
  words: readonly string[],
  command: CommandName | null,
): void {
  const [word, stray] = words;
  if (word === undefined) return;
  const flag = command === "agent" ? "--input" : command === "run" && hasTools(flags) ? "--folder" : "--kind";
  if (flag !== "--kind" && stray !== undefined) {
    const expects = flag === "--input" ? 'one task in quotes: troupe agent "TASK"' : "one folder";
    throw invalid(`${command} expects ${expects}; got ${words.length} words`);
  }
  setOnce(flags, flag, flag === "--kind" ? kindOf(words) : word, word);
}

/** Sets `flag`, which the user gave under its other name `name`. Throws if the flag is already set. */
function setOnce(flags: Record<string, unknown>, flag: string, value: string, name: string): void {
  if (flags[flag] !== undefined)
    throw invalid(`"${name}" means ${flag} ${value}, which is also given; remove one of them`);
  flags[flag] = value;
}

type Parsed = { readonly _: readonly string[]; readonly "-v"?: number } & Flags;

function parseFlags(argv: readonly string[], isFromConfig: boolean): Parsed {
  refuseForeignFlags(argv);
  const spec: arg.Spec = { "--help": Boolean, "-h": "--help", "--all": Boolean, "--version": Boolean, "-v": arg.COUNT };
  if (isFromConfig) Object.assign(spec, { "--file": unmarked, "-f": "--file" });
  for (const { flag, flags, shortFlag, key } of keyEntries) {
    if (flags.length === 0) continue;
    spec[flag] = key.shows === null ? Boolean : key.repeats ? [unmarked] : unmarked;
    // For from-config, -f means the settings file. For other commands it is the short flag of a key.
    for (const other of [...flags.slice(1), shortFlag ?? flag]) spec[other] ??= flag;
    if (key.shows === null) refuseValueOfSwitch(argv, flags);
  }
  const words = spellOut(withFlags(argv));
  try {
    // With this spec, `arg` returns only strings, lists of strings, `true`, and counts of repeated flags.
    const parsed = arg(spec, { argv: words });
    return { ...parsed, _: parsed._.map(unmarked) } as unknown as Parsed;
  } catch (cause) {
    if (!(cause instanceof arg.ArgError)) throw cause;
    throw explain(cause, words);
  }
}

/**
 * Repeats a flag before each of its values, because `arg` accepts one value per flag: `--lora a=b c=d` becomes `--lora a=b
 * --lora c=d`.
 */
function withFlags(argv: readonly string[]): string[] {
  let flag = "";
  let follows: RegExp | undefined;
  return argv.flatMap((word, index) => {
    if (word.startsWith("-")) {
      flag = word.split("=", 1)[0] ?? "";
      follows = keyEntries.find(({ flags }) => flags.includes(flag))?.key.follows;
      return [word];
    }
    // The first value already has the flag before it.
    return argv[index - 1] !== flag && follows?.test(word) ? [flag, word] : [word];
  });
}

/** Marks a word that `arg` would take for a flag. No argument of a program contains this character. */
const valueMark = "\0";

function unmarked(value: string): string {
  return value.startsWith(valueMark) ? value.slice(valueMark.length) : value;
}

/**
 * Rewrites the forms that `arg` cannot parse: flags with an optional value, values with line breaks after `=`, and words that begin with
 * a hyphen but are no flags, such as `-1` and `- a list`.
 */
function spellOut(argv: readonly string[]): string[] {
  return argv.flatMap((word, index) => {
    const [, flag, lines] = /^(--[^=]+)=(.*[\n\r\u2028\u2029].*)$/s.exec(word) ?? [];
    if (flag !== undefined && lines !== undefined) return [flag, valueMark + lines];
    if (/^-(?:[\d.]|[^=]*\s)/.test(word)) return [valueMark + word];
    const alone = keyEntries.find(({ flags }) => flags.includes(word))?.key.alone;
    const next = argv[index + 1];
    return alone === undefined || next === "true" || next === "false" ? [word] : [word, alone];
  });
}

/** Throws if a switch is given a value. `arg` ignores the text after `=`, so `--cpu=false` would mean true. */
function refuseValueOfSwitch(argv: readonly string[], flags: readonly string[]): void {
  const given = argv.find((word) => flags.some((flag) => word.startsWith(`${flag}=`)));
  if (given !== undefined) throw invalid(`${given.split("=")[0]} is a switch and takes no value; got "${given}"`);
}

/** Converts an error of `arg` to a ServerError with the flag, the expected value, and the most similar known flag. */
function explain(error: InstanceType<typeof arg.ArgError>, argv: readonly string[]): ServerError {
  const named = /(-{1,2}[^\s=]+)/.exec(error.message.split(": ").slice(1).join(": "))?.[1] ?? argv.join(" ");
  if (error.code === "ARG_UNKNOWN_OPTION") {
    if (named.startsWith("--")) entryOfFlag(named, valueAfter(argv, named));
    return invalid(`unknown flag "${named}"; see --help`);
  }
  const found = keyEntries.find(({ flags, shortFlag }) => flags.includes(named) || shortFlag === named);
  const next = argv[argv.indexOf(named) + 1];
  const isNone = next === undefined || !argv.includes(named);
  const came = isNone ? "none" : found?.key.secret ? "another flag" : `"${next}"`;
  return invalid(`${named} expects ${found?.key.expects ?? "a value"}; got ${came}`);
}

function valueAfter(argv: readonly string[], flag: string): string | undefined {
  const joined = argv.find((word) => word.startsWith(`${flag}=`));
  return joined === undefined ? argv[argv.indexOf(flag) + 1] : joined.slice(flag.length + 1);
}

function commandOf(word: string): CommandName {
  const found = commandNames.find((name) => name === word);
  if (found !== undefined) return found;
  if (plannedCommands.includes(word)) throw invalid(`"${word}" is not supported yet by this version of troupe`);
  const ours = Object.hasOwn(foreignCommands, word) ? foreignCommands[word] : undefined;
  if (ours !== undefined) throw invalid(`"${word}" is a command of other servers; write troupe ${ours}`);
  throw invalid(`unknown command "${word}"${suggestion(word, everyCommand)}`);
}

function kindOf(words: readonly string[]): string {
  const stray = words.find((word, index) => index > 0 || !modelKinds.includes(word));
  if (stray === undefined) return words[0] ?? "auto";
  const shown = withoutTokens(stray);
  throw invalid(`unexpected "${shown}"; use -m for a model, and flags for everything else: see --help`);
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
