// Help text, generated from the table of settings (config/keys.ts).

import type { CommandName, ToolName } from "./arguments.ts";
import type { Command, Key } from "./config/key.ts";
import {
  appliesTo,
  type GroupName,
  groupNames,
  groups,
  type KeyEntry,
  keyEntries,
  sectionHeader,
} from "./config/keys.ts";

export const commandHelp: Readonly<Record<CommandName | ToolName, string>> = {
  serve: "Serve models over HTTP",
  run: "Chat with a model in the terminal, or answer one prompt: run -i TEXT",
  agent: 'Do a task in a folder with tools, in the terminal: agent "TASK"; without TASK, chat',
  bench: "Measure the prefill and decode speed of a model",
  tune: "Find the settings of a model that are best on this machine, by short measurements",
  "from-config": "Run the command and settings of a TOML file: from-config -f FILE",
  models: "List recommended models, and the models on this machine",
  cache: "List or delete downloaded models",
  quantize: "Write a model with smaller weights, GGUF or UQFF: quantize -m MODEL --isq 4 -o FILE",
  uqff: "Show or check weights in UQFF: uqff report | verify | inspect -m MODEL",
  login: "Store the access token of the model hub",
  doctor: "Check whether this machine can run the server",
  completions: "Print a shell completion script: completions bash|zsh|fish",
};

const lineWidth = 100;
const flagWidth = 38;

/** Returns the text of `troupe --help`. */
export function commandsHelp(): string {
  const lines = Object.entries(commandHelp).map(([name, help]) => `  ${name.padEnd(14)}${help}`);
  return `Usage: troupe [COMMAND] [FLAGS]\n\nWithout a command, troupe serves.\n\nCommands:\n${lines.join("\n")}\n\nFlags of a command: troupe help COMMAND\n`;
}

/** Command with a page of help. `agent` has its own page, which lists the flags of `run`. */
type HelpedCommand = Command | "agent";

const examples: Readonly<Record<HelpedCommand, readonly string[]>> = {
  serve: [
    "troupe serve -m model.gguf --port 8080",
    "troupe serve -m owner/name:Q4_K_M --alias chat --max-model-len 8192",
    "troupe serve -m first.gguf -m second.gguf --host 127.0.0.1",
  ],
  run: ["troupe run", "troupe run --agent", 'troupe run -i "Name three rivers."'],
  agent: [
    'troupe agent "Find out why the tests fail"',
    'troupe agent --yes --folder site "Add a page about us"',
    "troupe agent --continue",
  ],
  bench: ["troupe bench", "troupe bench -m model.gguf", "troupe bench -m model.gguf --engine llama"],
  tune: [
    "troupe tune -m model.gguf",
    "troupe tune -m owner/name --profile fast --budget 30",
    "troupe tune -m model.gguf --emit-config troupe.toml",
  ],
};

/** Returns the text of `troupe COMMAND --help`: examples and the everyday flags; with `all`, all flags by section. */
export function flagsHelp(name: HelpedCommand, all: boolean): string {
  const command = name === "agent" ? "run" : name;
  const own = keyEntries.filter((entry) => entry.flags.length > 0 && appliesTo(entry, command));
  return all ? allFlags(name, command, own) : everydayFlags(name, command, own);
}

function everydayFlags(name: HelpedCommand, command: Command, own: readonly KeyEntry[]): string {
  const ofCommand = name === "agent" ? "run" : name === "tune" ? "tune" : "bench";
  const shown = own.filter(({ group, key }) => key.everyday || (group === ofCommand && !key.planned));
  return `Usage: troupe ${name} [FLAGS]

${commandHelp[name]}.

${examples[name].map((line) => `  ${line}`).join("\n")}

Everyday flags:
${shown.map((entry) => keyHelp(entry, command)).join("\n")}

All flags: troupe ${name} --help --all
`;
}

function allFlags(name: HelpedCommand, command: Command, own: readonly KeyEntry[]): string {
  const built = own.filter(({ key }) => !key.planned);
  const sections = groupNames.flatMap((group) => {
    const entries = built.filter((entry) => entry.group === group);
    return entries.length === 0 ? [] : [sectionHelp(group, entries, command)];
  });
  return `Usage: troupe ${name} [FLAGS]

${commandHelp[name]}.

${sections.join("\n\n")}

Flags are also keys of a TOML file (--max-seqs is max_seqs), in the section named above them, and
environment variables (TROUPE_MAX_SEQS).
${own.length - built.length} further flags are not supported yet; docs/configuration.md lists all.
`;
}

function sectionHelp(group: GroupName, entries: readonly KeyEntry[], command: Command): string {
  const { title, section } = groups[group];
  const place = section === null ? "" : ` (in a file: ${section === "" ? "at the top" : sectionHeader(section)})`;
  return [`${title}${place}:`, ...entries.map((entry) => keyHelp(entry, command))].join("\n");
}

function keyHelp({ flag, shortFlag, key }: KeyEntry, command: Command): string {
  const value = key.shows === null ? "" : key.alone === undefined ? ` ${key.shows}` : ` [${key.shows}]`;
  const names = `  ${shortFlag === null ? "    " : `${shortFlag}, `}${flag}${value}`;
  const words = [...key.help.split(" "), ...extras(key, command)];
  const lines = [""];
  for (const word of words) {
    const line = lines.at(-1) ?? "";
    if (line.length + word.length >= lineWidth - flagWidth) lines.push(word);
    else lines[lines.length - 1] = line === "" ? word : `${line} ${word}`;
  }
  const [first = "", ...rest] = lines;
  const head =
    names.length < flagWidth ? names.padEnd(flagWidth) + first : `${names}\n${" ".repeat(flagWidth)}${first}`;
  return [head, ...rest.map((line) => " ".repeat(flagWidth) + line)].join("\n");
}

function extras(key: Key, command: Command): string[] {
  const shown = defaultText(key, command);
  return [
    ...(shown === "" ? [] : [`[default: ${shown}]`]),
    ...(key.environment === undefined ? [] : [`[environment: ${key.environment}]`]),
  ];
}

/** Returns the default as text. It is empty if there is none: an unset value, a switch that is off, or an empty list. */
function defaultText({ defaultSays, defaultOf, default: fallback }: Key, command: Command): string {
  const value = defaultOf?.[command] ?? fallback;
  if (Array.isArray(value) && value.length === 0) return "";
  if (defaultSays !== undefined) return defaultSays.replaceAll("`", "");
  return value === null || value === false ? "" : String(value);
}
