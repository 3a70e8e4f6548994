// Readers of the settings in a file and in flags: each converts its source to a map from keys to values, and rejects unknown
// names. environment.ts reads the third source. config.ts checks the values.
import { ServerError } from "../../runtime/errors.ts";
import { suggestion } from "../../runtime/nearest.ts";
import type { Command } from "./key.ts";
import { appliesTo, groupNames, groups, type KeyEntry, keyEntries, sectionHeader } from "./keys.ts";
import { insteadOfFlag, insteadOfKey } from "./migration.ts";
import { isTable, lineOf, type TomlFile } from "./toml.ts";

/** Flags by their long names: text, `true` for a switch, or a list for a flag that may be repeated. */
export type Flags = Readonly<Record<string, string | true | readonly string[]>>;

/** Source of a given value. `program`: the program that embeds troupe. `default`: the default model. */
export type Source = "flag" | "environment" | "file" | "program" | "default";

/**
 * Value given by the user, and the name and place with which messages refer to the setting: `--port`, or `port` at
 * `troupe.toml:7`.
 */
export interface Given {
  readonly value: unknown;
  readonly source: Source;
  readonly name: string;
  /** Where the value was set: `environment` or `FILE:LINE`; null for a flag. */
  readonly place: string | null;
}

export type GivenValues = ReadonlyMap<KeyEntry, Given>;

export interface FileValues {
  readonly values: GivenValues;
  /** Values of each [[models]] entry, and the `FILE:LINE` of the entry. */
  readonly models: readonly { readonly values: GivenValues; readonly place: string }[];
}

export function givenByFlags(flags: Flags, command: Command): GivenValues {
  const values = new Map<KeyEntry, Given>();
  for (const [flag, raw] of Object.entries(flags)) {
    const entry = entryOfFlag(flag);
    if (!appliesTo(entry, command)) throw invalid(`"${flag}" does not apply to the command ${command}; remove it`);
    const { read } = entry.key;
    const value = raw === true ? raw : typeof raw === "string" ? read(raw) : raw.map(read);
    values.set(entry, { value, source: "flag", name: flag, place: null });
  }
  return values;
}

/** Returns the key of a long flag; `value` is the text after the flag. Throws config_invalid for an unknown flag. */
export function entryOfFlag(flag: string, value?: string): KeyEntry {
  const entry = keyEntries.find(({ flags }) => flags.includes(flag));
  if (entry !== undefined) return entry;
  const instead = insteadOfFlag(flag, value);
  if (instead !== undefined) throw invalid(instead);
  const known = [...keyEntries.flatMap(({ flags }) => flags), "--help", "--version"];
  throw invalid(`unknown flag "${flag}"${suggestion(flag, known)}`);
}

export function givenByFile(file: TomlFile, command: Command): FileValues {
  const values = new Map<KeyEntry, Given>();
  const models: { values: GivenValues; place: string }[] = [];
  const reading: Reading = { file, command, section: "", index: 0, values };
  for (const [name, value] of Object.entries(file.tree)) {
    if (name === "command") continue;
    if (name === "models") models.push(...readModels(file, command, value));
    else if (sectionNames().includes(name)) readSection(reading, name, value);
    else readKey(reading, name, value);
  }
  return { values, models };
}

interface Reading {
  readonly file: TomlFile;
  readonly command: Command;
  readonly section: string;
  /** Index of the current [[models]] entry. */
  readonly index: number;
  readonly values: Map<KeyEntry, Given>;
}

function readModels(file: TomlFile, command: Command, value: unknown): { values: GivenValues; place: string }[] {
  const entries: unknown[] = Array.isArray(value) ? value : [value];
  return entries.map((entry, index) => {
    const place = `${file.path}:${lineOf(file.text, "models", index)}`;
    if (!Array.isArray(value) || !isTable(entry)) throw invalid(`${place}: models expects [[models]] sections`);
    const values = new Map<KeyEntry, Given>();
    readSection({ file, command, section: "", index, values }, "models", entry);
    return { values, place };
  });
}

/** Reads a section of the file and its subsections. */
function readSection(reading: Reading, section: string, value: unknown): void {
  if (!isTable(value)) {
    const [name = ""] = section.split(".").slice(-1);
    const expected = `${name} expects a section ${sectionHeader(section)}`;
    throw invalid(`${placeOf(reading, section)}: ${expected}; got ${JSON.stringify(value)}`);
  }
  for (const [name, inner] of Object.entries<unknown>(value)) {
    const nested = `${section}.${name}`;
    if (hasSection(nested)) readSection(reading, nested, inner);
    else readKey({ ...reading, section }, name, inner);
  }
}

function readKey(reading: Reading, name: string, value: unknown): void {
  const { section, command, values } = reading;
  const place = placeOf(reading, section === "" ? name : `${section}.${name}`);
  const entry = entryOfKey(section, name, value, place);
  if (!appliesTo(entry, command)) {
    throw invalid(`${place}: "${name}" does not apply to the command ${command}; remove it`);
  }
  const earlier = values.get(entry);
  if (earlier !== undefined)
    throw invalid(`${place}: "${name}" is already set, as "${earlier.name}" (${earlier.place})`);
  values.set(entry, { value, source: "file", name, place });
}

function placeOf({ file, index }: Reading, path: string): string {
  return `${file.path}:${lineOf(file.text, path, index)}`;
}

function entryOfKey(section: string, name: string, value: unknown, place: string): KeyEntry {
  // General keys are at the top of the file or in the section [runtime].
  const home = section === "runtime" ? "" : section;
  const inSection = keyEntries.filter(({ group }) => groups[group].section === home);
  const entry = inSection.find(({ names }) => names.includes(name));
  if (entry !== undefined) return entry;
  const instead = insteadOfKey(name, value);
  if (instead !== undefined) throw invalid(`${place}: ${instead}`);
  const where = section === "" ? "" : ` in ${sectionHeader(section)}`;
  const known = inSection.flatMap(({ names }) => names);
  if (section === "") known.push(...sectionNames());
  throw invalid(`${place}: unknown key "${name}"${where}${suggestion(name, known)}${elsewhere(name)}`);
}

/** Returns the end of the error message about a misplaced key: the section that the key belongs to. */
function elsewhere(name: string): string {
  const found = keyEntries.find(({ names }) => names.includes(name));
  if (found === undefined) return "";
  const { section } = groups[found.group];
  return section ? `; it belongs in ${sectionHeader(section)}` : "; it belongs at the top of the file";
}

function sectionNames(): string[] {
  const own = groupNames.flatMap((group) => groups[group].section ?? []);
  return [...own, "runtime"].filter((section) => section !== "" && !section.includes("."));
}

function hasSection(name: string): boolean {
  return groupNames.some((group) => groups[group].section === name);
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
