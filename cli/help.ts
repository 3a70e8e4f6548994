// Owns the help text. It is made from the table of keys, so it cannot differ from what is accepted. Called by main.ts.

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
  run: "Talk with a model here, or answer one prompt: run -i TEXT",
  bench: "Measure prefill and decode speed of a model",
  "from-config": "Do what a TOML file says: from-config -f FILE",
  cache: "List or delete downloaded models",
  login: "Store the token of the model hub",
  doctor: "Say what may hinder the server on this machine",
  completions: "Print a script that completes commands and flags: completions bash|zsh|fish",
};

const lineWidth = 100;
const flagWidth = 38;

/** What `troupe --help` prints. */
export function commandsHelp(): string {
  const lines = Object.entries(commandHelp).map(([name, help]) => `  ${name.padEnd(14)}${help}`);
  return `Usage: troupe COMMAND [FLAGS]\n\nCommands:\n${lines.join("\n")}\n\nFlags of a command: troupe COMMAND --help\n`;
}

/** What `troupe COMMAND --help` prints: the command's flags by section, with the names they have in a file. */
export function flagsHelp(command: Command): string {
  const own = keyEntries.filter((entry) => entry.flags.length > 0 && appliesTo(entry, command));
  const built = own.filter(({ key }) => !key.planned);
  const sections = groupNames.flatMap((group) => {
    const entries = built.filter((entry) => entry.group === group);
    return entries.length === 0 ? [] : [sectionHelp(group, entries, command)];
  });
  return `Usage: troupe ${command} [FLAGS]

${commandHelp[command]}.

${sections.join("\n\n")}

A flag is a key of a TOML file too (--max-seqs is max_seqs), in the section named above it.
${own.length - built.length} more are not supported; docs/configuration.md has them all.
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
  const words = [key.help, ...extras(key, command)].join(" ").split(" ");
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
  const value = key.defaultOf?.[command] ?? key.default;
  const isShown = value !== null && value !== false;
  return [
    ...(isShown ? [`[default: ${String(value)}]`] : []),
    ...(key.environment === undefined ? [] : [`[environment: ${key.environment}]`]),
  ];
}
