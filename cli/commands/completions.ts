// `troupe completions bash|zsh|fish`: shell scripts that complete commands, flags and values, generated from the table of keys
// and from the specs of the commands without settings.

import assert from "node:assert/strict";
import type arg from "arg";
import { ServerError } from "../../runtime/errors.ts";
import { suggestion } from "../../runtime/nearest.ts";
import { type CommandName, modelKinds, type ToolName } from "../arguments.ts";
import type { Command } from "../config/key.ts";
import { appliesTo, type KeyEntry, keyEntries } from "../config/keys.ts";
import { commandHelp } from "../help.ts";
import { cacheFlags, doctorFlags, loginFlags, modelsFlags, quantizeFlags, uqffFlags } from "./tool-flags.ts";

/** Flag that the shell suggests. */
interface Flag {
  /** Names as typed: `--port`, `-p`. */
  readonly names: readonly string[];
  readonly help: string;
  /** Kind of value: none, one of these words, a path, or any text. */
  readonly value: "none" | "path" | "any" | readonly string[];
}

interface Completed {
  readonly name: string;
  readonly help: string;
  /** Words that may follow the command directly. */
  readonly words: readonly string[];
  readonly flags: readonly Flag[];
}

const shells = ["bash", "zsh", "fish"] as const;
const usage = `troupe completions ${shells.join("|")}`;

const helpFlag: Flag = { names: ["--help", "-h"], help: "Show the help", value: "none" };
const allFlag: Flag = { names: ["--all"], help: "With --help: show all flags", value: "none" };
const verboseFlag: Flag = { names: ["-v"], help: "Log level debug; -vv is trace", value: "none" };

/** Flags of tools that are no settings, or mean something else there: help, and kind of value. */
const ownFlags: Readonly<Record<string, Pick<Flag, "help" | "value">>> = {
  "--help": helpFlag,
  "--json": { help: "Print JSON", value: "none" },
  "--model-id": { help: "Model", value: "any" },
  "--yes": { help: "Delete without asking", value: "none" },
  "--isq": { help: "Quantization level; repeatable", value: "any" },
  "--output": { help: "File or folder to write", value: "path" },
  "--from-uqff": { help: "UQFF file to take", value: "path" },
  "--uqff": { help: "Write UQFF into the folder", value: "none" },
  "--uqff-base-model": { help: "Model named in the README and the report of UQFF", value: "any" },
  "--uqff-repo-id": { help: "Repository named in the README and the report of UQFF", value: "any" },
  "--no-readme": { help: "Write no README.md into the folder", value: "none" },
  "--quant": { help: "UQFF file, or a quantization", value: "any" },
  "--write": { help: "Write the report into the folder", value: "none" },
  "--base-model": { help: "Model that the report names as the unquantized one", value: "any" },
  "--repo-id": { help: "Repository that the report names", value: "any" },
  "--token": { help: "Access token; without it, login asks for it", value: "any" },
};

/** Prints the completion script. Throws config_invalid for an unknown shell. */
export function completionsCommand(args: readonly string[]): void {
  const [shell, ...others] = args;
  if (shell === "--help" || shell === "-h") return void process.stdout.write(`${usage}\n`);
  const known = shells.find((name) => name === shell);
  if (known === undefined || others.length > 0) {
    const near = shell === undefined ? "" : suggestion(shell, shells);
    throw new ServerError("config_invalid", `completions expects ${usage}; got ${args.join(" ") || "none"}${near}`);
  }
  process.stdout.write(completionScript(known));
}

export function completionScript(shell: (typeof shells)[number]): string {
  return { bash: bashScript, zsh: zshScript, fish: fishScript }[shell](completed());
}

function completed(): readonly Completed[] {
  const file: Flag = { names: ["--file", "-f"], help: "TOML file of settings", value: "path" };
  const flagsOfAll: Readonly<Record<CommandName | ToolName, readonly Flag[]>> = {
    serve: flagsOf("serve"),
    run: flagsOf("run"),
    agent: flagsOf("run"),
    bench: flagsOf("bench"),
    tune: flagsOf("tune"),
    "from-config": [file, helpFlag],
    models: toolFlags(modelsFlags),
    cache: toolFlags({ ...cacheFlags.list, ...cacheFlags.delete }),
    quantize: toolFlags(quantizeFlags),
    uqff: toolFlags(uqffFlags),
    login: toolFlags(loginFlags),
    doctor: toolFlags(doctorFlags),
    completions: [helpFlag],
  };
  const words: Readonly<Record<string, readonly string[]>> = {
    serve: modelKinds,
    run: modelKinds,
    bench: modelKinds,
    tune: modelKinds,
    cache: ["list", "delete"],
    uqff: ["report", "verify", "inspect"],
    completions: shells,
  };
  return Object.entries(flagsOfAll).map(([name, flags]) => {
    return { name, help: commandHelp[name as CommandName | ToolName], words: words[name] ?? [], flags };
  });
}

function flagsOf(command: Command): readonly Flag[] {
  const offered = keyEntries.filter(
    (entry) => entry.flags.length > 0 && !entry.key.planned && appliesTo(entry, command),
  );
  return [...offered.map(flagOf), verboseFlag, helpFlag, allFlag];
}

function toolFlags(spec: arg.Spec): readonly Flag[] {
  const main = Object.keys(spec).filter((name) => typeof spec[name] !== "string");
  return main.map((name) => {
    const names = [name, ...Object.keys(spec).filter((other) => spec[other] === name)];
    const key = keyEntries.find(({ flags }) => flags.includes(name));
    const shown = ownFlags[name] ?? (key === undefined ? undefined : flagOf(key));
    assert(shown !== undefined, `${name} is a flag of a setting, or has a help text here`);
    return { names, help: shown.help, value: shown.value };
  });
}

function flagOf({ flags, shortFlag, key }: KeyEntry): Flag {
  return { names: shortFlag === null ? flags : [...flags, shortFlag], help: key.help, value: valueShown(key.shows) };
}

/**
 * Returns the kind of value of a flag. `shows` is its placeholder in the help text: `auto|on|off` for fixed values, FILE or DIR
 * for a path, and another word in capitals for free text.
 */
function valueShown(shows: string | null): Flag["value"] {
  if (shows === null) return "none";
  if (shows === "FILE" || shows === "DIR") return "path";
  return /^[a-z0-9_.-]+(\|[a-z0-9_.-]+)+$/.test(shows) ? shows.split("|") : "any";
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

function bashScript(commands: readonly Completed[]): string {
  const cases = commands.map(({ name, words, flags }) => {
    const valued = flags.filter(({ value }) => value !== "none");
    const values = valued.map(({ names, value }) => {
      return `      ${names.join("|")}) ${bashValues(value)}return ;;`;
    });
    const lines = values.length === 0 ? [] : ['    case "$previous" in', ...values, "    esac"];
    const all = [...words, ...flags.flatMap(({ names }) => names)];
    return [`  ${name})`, ...lines, `    ${bashWords(all)} ;;`].join("\n");
  });
  const general = [...commands.map(({ name }) => name), "--help", "--version"];
  // If the script suggests nothing, bash suggests files.
  return `# Completions of troupe for bash: source <(troupe completions bash)
_troupe() {
  local word="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" command=1
  COMPREPLY=()
  while [ "$command" -lt "$COMP_CWORD" ] && [[ "\${COMP_WORDS[command]}" == -* ]]; do command=$((command + 1)); done
  if [ "$command" -eq "$COMP_CWORD" ]; then
    ${bashWords(general)}
    return
  fi
  case "\${COMP_WORDS[command]}" in
${cases.join("\n")}
  esac
}
complete -o default -F _troupe troupe
`;
}

function bashWords(words: readonly string[]): string {
  return `COMPREPLY=($(compgen -W ${quoted(words.join(" "))} -- "$word"))`;
}

/** Returns the shell code that suggests values; empty for a path or free text. */
function bashValues(value: Flag["value"]): string {
  return typeof value === "string" ? "" : `${bashWords(value)}; `;
}

function zshScript(commands: readonly Completed[]): string {
  const names = commands.map(({ name, help }) => `    ${quoted(`${name}:${help}`)}`).join("\n");
  const cases = commands.map(({ name, words, flags }) => {
    const specs = flags.flatMap((flag) => flag.names.map((each) => `        ${quoted(zshSpec(each, flag))}`));
    const word = words.length === 0 ? [] : [`        ${quoted(`1:: :(${words.join(" ")})`)}`];
    return `    ${name})\n      _arguments -s \\\n${[...specs, ...word].join(" \\\n")} ;;`;
  });
  return `#compdef troupe
# Completions of troupe for zsh: troupe completions zsh > "\${fpath[1]}/_troupe"
_troupe() {
  local -a commands
  commands=(
${names}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command="\${words[2]}"
  shift words
  (( CURRENT-- ))
  case "$command" in
${cases.join("\n")}
  esac
}
if [ "$funcstack[1]" = _troupe ]; then _troupe "$@"; else compdef _troupe troupe; fi
`;
}

function zshSpec(name: string, { help, value }: Flag): string {
  const said = help.replaceAll(/[[\]:]/g, (sign) => `\\${sign}`);
  // Because of the star, the shell also suggests flags that were already typed. Most flags may not be repeated, but
  // troupe itself checks this.
  const spec = `*${name}[${said}]`;
  if (value === "none") return spec;
  if (value === "path") return `${spec}:path:_files`;
  return value === "any" ? `${spec}:value: ` : `${spec}:value:(${value.join(" ")})`;
}

function fishScript(commands: readonly Completed[]): string {
  const first = commands.map(({ name, help }) => {
    return `complete -c troupe -n __fish_use_subcommand -f -a ${name} -d ${quoted(help)}`;
  });
  const rest = commands.flatMap(({ name, words, flags }) => {
    const when = `complete -c troupe -n '__fish_seen_subcommand_from ${name}'`;
    const own = words.length === 0 ? [`${when} -f`] : [`${when} -f -a ${quoted(words.join(" "))}`];
    return [...own, ...flags.map((flag) => `${when} ${fishFlag(flag)}`)];
  });
  return `# Completions of troupe for fish: troupe completions fish > ~/.config/fish/completions/troupe.fish
${[...first, ...rest].join("\n")}
`;
}

function fishFlag({ names, help, value }: Flag): string {
  const parts = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
  const takes =
    value === "none" ? "" : value === "path" ? " -r -F" : value === "any" ? " -x" : ` -x -a ${quoted(value.join(" "))}`;
  return `${parts.join(" ")}${takes} -d ${quoted(help)}`;
}
