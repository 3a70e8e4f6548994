// Generator of docs/configuration.md: every key of the table with its names, default, type and state. write-reference.ts writes
// the file; a test fails if the file is out of date.
import { code, markdownTable } from "../../runtime/markdown-table.ts";
import type { Key } from "./key.ts";
import { appliesTo, type GroupName, groupNames, groups, type KeyEntry, keyEntries, sectionHeader } from "./keys.ts";
import { insteadOfKey, olderKeys } from "./migration.ts";

const commands = ["serve", "run", "bench", "tune"] as const;

const introduction = `# Configuration

<!-- Generated from the table of keys by \`npm run docs\`; edits are lost. -->

Settings come from defaults, a TOML file (\`troupe from-config -f FILE\`), environment variables and flags; the later source
wins. Every key of a file is also a flag, with dashes: \`max_seqs\` is \`--max-seqs\`. Every flag is also a variable, in capitals
and with the prefix \`TROUPE_\`: \`--max-seqs 16\` is \`TROUPE_MAX_SEQS=16\`. The file starts with its command:

\`\`\`toml
command = "serve" # or "run"
max_seqs = 16 # general keys: at the top or under [runtime]

[server]
port = 8080

[[models]] # once per model
model_id = "/models/qwen2.5-7b-instruct-q4_k_m.gguf"
max_model_len = 8192

[models.device] # a section of this model
cpu = true
\`\`\`

- \`-m\` and \`TROUPE_MODEL_ID\` replace the models of a file. Every other flag or variable of a model applies to all models.
- A switch takes no value as a flag, and \`true\` or \`false\` in a file; a variable also takes \`1\`, \`yes\`, \`on\` and \`0\`, \`no\`,
  \`off\`. A variable with several values has commas between them, or is a JSON array. \`-v\` and \`-vv\` mean \`--log-level debug\` and
  \`trace\`.
- An unknown name, a wrong value or two conflicting settings stop the start with exit code 2; the message names the line.
- A variable that is empty, or of a key that the command does not have, is ignored. A variable that begins with \`TROUPE_\` and is
  no setting is ignored with a warning.
- The tables name a flag only if it differs from the key with dashes. Numbers such as \`1 to 64\` are whole numbers. A key without
  a default is unset. A row with only a name in capitals, an environment variable, has no key and no flag.
- A key applies to \`serve\`, \`run\`, \`bench\` and \`tune\`, unless its section or its description begins with other commands.
- _Planned_ keys and values are in the contract but not built; _refused_ keys have no meaning in this server. Both are refused
  by name, except a value that asks for what the server does anyway.`;

/** Phrases of error messages that the tables leave out, because the column is named "values". */
const phrases: readonly (readonly [RegExp, string])[] = [
  [/^a whole number from /, ""],
  [/^a whole number, at least /, "from "],
  [/^(one of|an?|the) /, ""],
];

/** Returns the text of docs/configuration.md. */
export function renderReference(): string {
  const sections = groupNames.map((group) => `## ${heading(group)}\n\n${commandsOf(group)}${tableOf(group)}`);
  const older = `## Keys of version 0.9.4\n\nThey are refused; the error names the replacement:\n\n${olderTable()}`;
  return `${[introduction, ...sections, older].join("\n\n")}\n`;
}

function heading(group: GroupName): string {
  const { title, section } = groups[group];
  if (section === null) return `${title}: flags only`;
  return `${title}: ${section === "" ? "at the top" : `\`${sectionHeader(section)}\``}`;
}

/** Returns the line with the commands of most keys of the group; empty if they are all commands. */
function commandsOf(group: GroupName): string {
  const usual = usualCommands(group);
  return usual === commands.join() ? "" : `Commands: ${usual.split(",").map(code).join(", ")}.\n\n`;
}

/** Returns the commands of most keys of the group, with commas between them. */
function usualCommands(group: GroupName): string {
  const sets = keyEntries
    .filter((entry) => entry.group === group)
    .map((entry) => commands.filter((command) => appliesTo(entry, command)).join());
  const count = (set: string) => sets.filter((other) => other === set).length;
  return sets.reduce((most, set) => (count(set) > count(most) ? set : most), sets[0] ?? "");
}

function tableOf(group: GroupName): string {
  const entries = keyEntries.filter((entry) => entry.group === group);
  return markdownTable(["key", "values", "default", "description"], entries.map(rowOf));
}

function rowOf(entry: KeyEntry): string[] {
  const { key } = entry;
  const own = commands.filter((command) => appliesTo(entry, command));
  const usedBy = own.join() === usualCommands(entry.group) ? [] : [`_${own.join(", ")}:_`];
  const values = phrases.reduce((text, [phrase, instead]) => text.replace(phrase, instead), key.expects);
  const fileOnly = key.only === "file" ? " (only in a file)" : "";
  // The help of a key without a default may say what an unset key means.
  const unset = defaultOf(key) === "" ? /; unset = ([^;]+)$/.exec(key.help) : null;
  const help = unset === null ? key.help : key.help.slice(0, unset.index);
  return [
    namesOf(entry).join(", ") + fileOnly,
    values,
    unset?.[1] ?? defaultOf(key),
    [...usedBy, ...stateOf(key), help].join(" "),
  ];
}

/** Returns the names of a key in a file, the flags that do not follow from them, and its environment variables. */
function namesOf({ names, flags, shortFlag, variables, key }: KeyEntry): readonly string[] {
  const derived = names.map((name) => `--${name.replaceAll("_", "-")}`);
  const shown = flags.length === 0 || derived.includes(flags[0] ?? "") ? [] : flags.slice(0, 1);
  const environment = key.only === "environment" ? variables : [key.environment ?? []].flat();
  return [...names, ...(shortFlag === null ? [] : [shortFlag]), ...shown, ...environment].map(code);
}

function defaultOf({ default: value, defaultOf = {}, defaultSays }: Key): string {
  if (defaultSays !== undefined) return defaultSays;
  const shown = value === null ? [] : [code(String(value))];
  return [...shown, ...Object.entries(defaultOf).map(([command, own]) => `${command}: ${code(String(own))}`)].join(
    "; ",
  );
}

function stateOf({ planned, never, holds = [], plannedValues = [] }: Key): readonly string[] {
  if (!planned) return plannedValues.length === 0 ? [] : [`_Planned_: ${plannedValues.map(code).join(", ")}.`];
  const except = holds.length === 0 ? "" : `, except ${holds.map((value) => code(String(value))).join(", ")}`;
  return [`_${never === undefined ? "Planned" : "Refused"}_${except}.`];
}

function olderTable(): string {
  const rows = olderKeys.map(({ names, section }) => {
    const [name = ""] = names;
    const instead = insteadOfKey(name, "N")?.split("; write ").slice(1).join("; write ") ?? "";
    return [`\`${sectionHeader(section)}\``, names.map(code).join(", "), instead.replace(" instead", "")];
  });
  return markdownTable(["section", "key", "write instead"], rows);
}
