// Owns turning each source of settings (file, environment, flags) into one shape: given values by key. Nothing is dropped
// here: a name that the table does not have is refused. What the values mean is config.ts's work, its only caller.
import { ServerError } from "../../runtime/errors.ts";
import { suggestion } from "../../runtime/nearest.ts";
import type { Command } from "./key.ts";
import { appliesTo, groupNames, groups, type KeyEntry, keyEntries, sectionHeader } from "./keys.ts";
import { insteadOfFlag, insteadOfKey } from "./migration.ts";
import { isTable, lineOf, type TomlFile } from "./toml.ts";

/** Flags by their long names, as text; `true` for a switch, a list for a flag that may be repeated. */
export type Flags = Readonly<Record<string, string | true | readonly string[]>>;

/** A value somebody set, and how to call it in a message: `--port`, or `port` at `troupe.toml:7`. */
export interface Given {
  readonly value: unknown;
  readonly name: string;
  /** Where it stands; null for a flag. */
  readonly place: string | null;
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
    const { read } = entry.key;
    const value = raw === true ? raw : typeof raw === "string" ? read(raw) : raw.map(read);
    values.set(entry, { value, name: flag, place: null });
  }
  return values;
}

/** The key a long flag stands for. Throws config_invalid for a flag that is unknown; `value` is what follows it. */
export function entryOfFlag(flag: string, value?: string): KeyEntry {
  const entry = keyEntries.find(({ flags }) => flags.includes(flag));
  if (entry !== undefined) return entry;
  const instead = insteadOfFlag(flag, value);
  if (instead !== undefined) throw invalid(instead);
  const known = keyEntries.flatMap(({ flags }) => flags);
  throw invalid(`unknown flag "${flag}"${suggestion(flag, known)}`);
}

export function givenByEnvironment(
  environment: Readonly<Record<string, string | undefined>>,
  command: Command,
): GivenValues {
  const values = new Map<KeyEntry, Given>();
  for (const entry of keyEntries) {
    const name = entry.key.environment;
    const raw = name === undefined ? undefined : environment[name];
    // Unlike a flag, a variable is not said to one command, so it may mean nothing to this one.
    if (name === undefined || raw === undefined || !appliesTo(entry, command)) continue;
    if (raw === "" && !entry.key.refusesEmpty) continue;
    values.set(entry, { value: entry.key.read(raw), name, place: "environment" });
  }
  return values;
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
  /** Which of the [[models]] it is in. */
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

/** Reads the section, and those in it, of a file or of one of its models. */
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
    throw invalid(`${place}: "${name}" means nothing to the command ${command}; leave it out`);
  }
  const earlier = values.get(entry);
  if (earlier !== undefined)
    throw invalid(`${place}: "${name}" is set already, as "${earlier.name}" (${earlier.place})`);
  values.set(entry, { value, name, place });
}

function placeOf({ file, index }: Reading, path: string): string {
  return `${file.path}:${lineOf(file.text, path, index)}`;
}

function entryOfKey(section: string, name: string, value: unknown, place: string): KeyEntry {
  // General keys may stand at the top or under [runtime].
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

/** Where else a misplaced key belongs. */
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
