// Owns docs/configuration.md: every key of the table with its names, default, type and state. Called by write-reference.ts,
// which writes the file, and by the test that says when the file is behind the table.
import { code, markdownTable } from "../../runtime/markdown-table.ts";
import type { Key } from "./key.ts";
import { appliesTo, type GroupName, groupNames, groups, type KeyEntry, keyEntries, sectionHeader } from "./keys.ts";
import { insteadOfKey, olderKeys } from "./migration.ts";

const commands = ["serve", "run", "bench"] as const;

const introduction = `# Configuration

<!-- Made from the table of keys by \`npm run docs\`; changes made here are lost. -->

Settings come from, weakest first: defaults, a TOML file (\`troupe from-config -f FILE\`), environment variables, flags. A
key of a file is a flag too, with dashes: \`max_seqs\` is \`--max-seqs\`. The file names its command at the top:

\`\`\`toml
command = "serve" # or "run"
max_seqs = 16 # general keys stand at the top, or under [runtime]

[server]
port = 8080

[[models]] # one for each model
model_id = "/models/qwen2.5-7b-instruct-q4_k_m.gguf"
max_model_len = 8192

[models.device] # sections of this model
cpu = true
\`\`\`

- \`-m\` replaces the models of a file. Any other flag of a model holds for all of them.
- A switch takes no value as a flag, and \`true\` or \`false\` in a file. \`-v\` and \`-vv\` stand for \`--log-level debug\` and
  \`trace\`.
- An unknown name, a wrong value, or two settings that exclude one another end the start with exit code 2 and the line
  at fault.
- _Planned_ keys are of the contract, but what they set is not built yet. They are refused by name, never ignored. A value
  that _holds_ says what the server does anyway, and is accepted. _Refused_ ones have no meaning in this server, and never
  will.`;

/** The whole text of docs/configuration.md. */
export function renderReference(): string {
  const sections = groupNames.map((group) => `## ${heading(group)}\n\n${tableOf(group)}`);
  const older = `## Keys of version 0.9.4\n\nThey are refused, with what to write instead:\n\n${olderTable()}`;
  return `${[introduction, ...sections, older].join("\n\n")}\n`;
}

function heading(group: GroupName): string {
  const { title, section } = groups[group];
  if (section === null) return `${title}: flags only`;
  return `${title}: ${section === "" ? "at the top" : `\`${sectionHeader(section)}\``}`;
}

function tableOf(group: GroupName): string {
  const entries = keyEntries.filter((entry) => entry.group === group);
  const header = ["key", "flag", "default", "type", "for", "state", "what it sets"];
  return markdownTable(header, entries.map(rowOf));
}

function rowOf(entry: KeyEntry): string[] {
  const { names, flags, shortFlag, key } = entry;
  const flag = [...(shortFlag === null ? [] : [shortFlag]), ...flags];
  const environment = key.environment === undefined ? [] : [`environment: \`${key.environment}\``];
  return [
    names.map(code).join(", "),
    [...flag.map(code), ...environment].join(", "),
    defaultOf(key),
    key.expects,
    commands.filter((command) => appliesTo(entry, command)).join(", "),
    stateOf(key),
    key.help,
  ];
}

function defaultOf({ default: value, defaultOf = {}, defaultSays }: Key): string {
  if (defaultSays !== undefined) return defaultSays;
  const shown = value === null ? "unset" : code(String(value));
  return [shown, ...Object.entries(defaultOf).map(([command, own]) => `${command}: ${code(String(own))}`)].join("; ");
}

function stateOf({ planned, never, holds = [], plannedValues = [] }: Key): string {
  if (!planned) return ["built", ...plannedValues.map((value) => `${code(value)} planned`)].join("; ");
  return [never === undefined ? "planned" : "refused", ...holds.map((value) => `${code(String(value))} holds`)].join(
    "; ",
  );
}

function olderTable(): string {
  const rows = olderKeys.map(({ names, section }) => {
    const [name = ""] = names;
    const instead = insteadOfKey(name, "N")?.split("; write ").slice(1).join("; write ") ?? "";
    return [`\`${sectionHeader(section)}\``, names.map(code).join(", "), instead.replace(" instead", "")];
  });
  return markdownTable(["section", "key", "write instead"], rows);
}
