// Owns turning each source of settings (file, environment, flags) into one shape: given values by key. Nothing is dropped
// here: a name that is not a built key is refused, as not built yet or as unknown. Called by resolve.ts only.
import { ServerError } from "../errors.ts";
import type { Command } from "./key.ts";
import { appliesTo, groups, type KeyEntry, keyEntries, sectionHeader } from "./keys.ts";
import { suggestion } from "./nearest.ts";
import { notSupportedYet, plannedEnvironment, plannedFlags, plannedKeys } from "./planned.ts";
import { isTable, lineOf, type TomlFile, type TomlTable } from "./toml.ts";

/** Flags by their long names, as text; `true` for a switch, a list for a flag that may be repeated. */
export type Flags = Readonly<Record<string, string | true | readonly string[]>>;

/** A value somebody set, and how to call it in a message: `--port` or `troupe.toml:7: port`. */
interface Given {
  readonly value: unknown;
  readonly name: string;
}

export type GivenValues = ReadonlyMap<KeyEntry, Given>;

export interface FileValues {
  readonly values: GivenValues;
  /** One per [[models]] entry, with the place of the entry. */
  readonly models: readonly { readonly values: GivenValues; readonly place: string }[];
}

export function givenByFlags(flags: Flags, command: Command): GivenValues {
  const values = new Map<KeyEntry, Given>();
  for (const [flag, raw] of Object.entries(flags)) {
    const entry = entryOfFlag(flag);
    if (!appliesTo(entry, command)) throw invalid(`"${flag}" means nothing to the command ${command}; leave it out`);
    values.set(entry, { value: typeof raw === "string" ? entry.key.read(raw) : raw, name: flag });
  }
  return values;
}

/** The key a long flag stands for. Throws config_invalid for a flag that is planned or unknown. */
export function entryOfFlag(flag: string): KeyEntry {
  const entry = keyEntries.find((candidate) => candidate.flag === flag && !candidate.key.fileOnly);
  if (entry !== undefined) return entry;
  if (plannedFlags.has(flag)) throw invalid(notSupportedYet(flag));
  const known = keyEntries.flatMap(({ flag, key }) => (key.alias === undefined ? [flag] : [flag, key.alias]));
  throw invalid(`unknown flag "${flag}"${suggestion(flag, [...known, ...plannedFlags])}`);
}

export function givenByEnvironment(environment: Readonly<Record<string, string | undefined>>): GivenValues {
  const planned = plannedEnvironment.find((name) => environment[name]);
  if (planned !== undefined) throw invalid(`environment: ${notSupportedYet(planned)}`);
  const values = new Map<KeyEntry, Given>();
  for (const entry of keyEntries) {
    const name = entry.key.environment;
    const raw = name === undefined ? undefined : environment[name];
    if (name !== undefined && raw) values.set(entry, { value: entry.key.read(raw), name });
  }
  return values;
}

export function givenByFile(file: TomlFile, command: Command): FileValues {
  const values = new Map<KeyEntry, Given>();
  const models: { values: GivenValues; place: string }[] = [];
  const read = (section: string, table: TomlTable) => readSection({ file, command, section, index: 0, values }, table);
  for (const [name, value] of Object.entries(file.tree)) {
    if (name === "command") continue;
    if (name === "models") models.push(...readModels(file, command, value));
    else if (name === "runtime" || hasSection(name)) read(name, expectTable(file, name, value));
    else read("", { [name]: value });
  }
  return { values, models };
}

interface Reading {
  readonly file: TomlFile;
  readonly command: Command;
  readonly section: string;
  /** Which of the [[models]] it is in. */
  readonly index: number;
  readonly values: Map<KeyEntry, Given>;
}

function readModels(file: TomlFile, command: Command, value: unknown): { values: GivenValues; place: string }[] {
  const entries: unknown[] = Array.isArray(value) ? value : [value];
  return entries.map((entry, index) => {
    const place = `${file.path}:${lineOf(file.text, "models", index, "")}`;
    if (!Array.isArray(value) || !isTable(entry)) throw invalid(`${place}: models expects [[models]] sections`);
    const values = new Map<KeyEntry, Given>();
    readSection({ file, command, section: "models", index, values }, entry);
    return { values, place };
  });
}

function readSection(reading: Reading, table: TomlTable): void {
  const { file, section, index } = reading;
  for (const [name, value] of Object.entries(table)) {
    const nested = `${section}.${name}`;
    if (hasSection(nested)) {
      readSection({ ...reading, section: nested }, expectTable(file, nested, value));
      continue;
    }
    const place = `${file.path}:${lineOf(file.text, section, index, name)}`;
    const entry = entryOfKey(section, name, place);
    if (!appliesTo(entry, reading.command)) {
      throw invalid(`${place}: "${name}" means nothing to the command ${reading.command}; leave it out`);
    }
    if (reading.values.has(entry)) throw invalid(`${place}: "${name}" is set twice, at the top and under [runtime]`);
    reading.values.set(entry, { value, name: `${place}: ${name}` });
  }
}

function entryOfKey(section: string, name: string, place: string): KeyEntry {
  // General keys may stand at the top or under [runtime].
  const home = section === "runtime" ? "" : section;
  const inSection = keyEntries.filter(({ group }) => groups[group].section === home);
  const entry = inSection.find((candidate) => candidate.name === name);
  if (entry !== undefined) return entry;
  const planned = plannedKeys(home) ?? new Set();
  if (planned.has(name)) throw invalid(`${place}: ${notSupportedYet(name)}`);
  const where = section === "" ? "" : ` in ${sectionHeader(section)}`;
  const known = [...inSection.map((candidate) => candidate.name), ...planned];
  if (section === "") known.push(...sectionNames());
  throw invalid(`${place}: unknown key "${name}"${where}${suggestion(name, known)}${elsewhere(name)}`);
}

/** Where else a misplaced key belongs. */
function elsewhere(name: string): string {
  const found = keyEntries.find((entry) => entry.name === name && groups[entry.group].section !== null);
  if (found === undefined) return "";
  const { section } = groups[found.group];
  return section ? `; it belongs in ${sectionHeader(section)}` : "; it belongs at the top of the file";
}

function sectionNames(): string[] {
  const own = Object.values(groups).flatMap(({ section }) => (section === null ? [] : [section]));
  return [...own, "runtime", "sandbox"].filter((section) => section !== "" && !section.includes("."));
}

function hasSection(name: string): boolean {
  return Object.values(groups).some(({ section }) => section === name) || plannedKeys(name) !== undefined;
}

function expectTable(file: TomlFile, section: string, value: unknown): TomlTable {
  if (isTable(value)) return value;
  const [, key = section] = section.split(".");
  const place = `${file.path}:${lineOf(file.text, section.includes(".") ? "models" : "", 0, key)}`;
  throw invalid(`${place}: ${key} expects a section ${sectionHeader(section)}; got ${JSON.stringify(value)}`);
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
