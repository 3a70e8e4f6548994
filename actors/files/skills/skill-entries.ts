// Skill entries: checks the paths and sizes of an upload's files before they are written. An upload contains either one top-level
// folder, or the files of a skill without a top-level folder.
import type { Readable } from "node:stream";
import { ServerError } from "../../../runtime/errors.ts";
import { skillLimits } from "../../api/agent/skills.ts";
import { checkedFileName } from "../file-name.ts";

/** Name of the file with the instructions, at the top of each skill. */
export const skillFileName = "SKILL.md";

export interface SkillEntry {
  /** Checked path with `/` separators, in Unicode normalisation form C. */
  readonly path: string;
  readonly isFolder: boolean;
  /** Size in bytes as declared in the upload. The actual size may differ. */
  readonly bytes: number;
  readonly isExecutable: boolean;
  readonly read: () => Promise<Readable>;
}

/**
 * Returns the files with their paths within the skill's folder. Throws invalid_value if two paths could refer to the same file, a
 * path uses a file as a folder, there are too many files or bytes, or there is no SKILL.md at the top.
 */
export function arrangedFiles(entries: readonly SkillEntry[]): readonly SkillEntry[] {
  const tree = new Tree();
  for (const entry of entries) tree.add(entry);
  const files = entries.filter(({ isFolder }) => !isFolder);
  checkSize(files);
  const top = topOf(entries);
  const within = files.map((file) => ({ ...file, path: file.path.slice(top.length) }));
  if (within.some(({ path }) => path === skillFileName)) return within;
  throw invalidSkill(`expected the file ${skillFileName} at the top of the skill's folder; got none`);
}

/** Returns the checked form of a path. Throws invalid_value. */
export function checkedPath(path: string): string {
  let checked: string;
  try {
    checked = checkedFileName(path, true);
  } catch (error) {
    throw invalidSkill((error as Error).message);
  }
  const depth = checked.split("/").length - 1;
  if (depth <= skillLimits.maxDepth) return checked;
  throw invalidSkill(`expected paths of at most ${skillLimits.maxDepth} folders, got ${depth} in ${shown(path)}`);
}

/** Creates the error for an upload that is not a skill. */
export function invalidSkill(message: string): ServerError {
  return new ServerError("invalid_value", message, { param: "files" });
}

/** Returns a path, shortened and quoted, for an error message. */
export function shown(path: string): string {
  return JSON.stringify(path.length > 100 ? `${path.slice(0, 100)}…` : path);
}

/** Paths of the upload so far. A folder may be added several times, a file only once. */
class Tree {
  readonly #kinds = new Map<string, { readonly isFolder: boolean; readonly path: string }>();

  add({ path, isFolder }: SkillEntry): void {
    const parts = path.split("/");
    for (let count = 1; count < parts.length; count++) this.#take(parts.slice(0, count).join("/"), true);
    this.#take(path, isFolder);
  }

  #take(path: string, isFolder: boolean): void {
    const key = comparable(path);
    const taken = this.#kinds.get(key);
    this.#kinds.set(key, { path, isFolder });
    if (taken === undefined || (isFolder && taken.isFolder && taken.path === path)) return;
    if (taken.isFolder !== isFolder) throw invalidSkill(`${shown(path)} is both a file and a folder in the upload`);
    if (taken.path === path) throw invalidSkill(`expected each path once, got ${shown(path)} twice`);
    throw invalidSkill(`${shown(taken.path)} and ${shown(path)} are one name on some systems; rename one of them`);
  }
}

/** Returns a normal form of a path. Two paths with the same form can be one file on file systems that ignore case and Unicode forms. */
function comparable(path: string): string {
  return path.normalize("NFKC").toUpperCase().toLowerCase().normalize("NFKC");
}

function checkSize(files: readonly SkillEntry[]): void {
  const { maxFiles, maxBytes } = skillLimits;
  if (files.length > maxFiles) throw invalidSkill(`expected at most ${maxFiles} files, got ${files.length}`);
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  if (bytes > maxBytes) throw invalidSkill(`expected files of at most ${maxBytes} bytes together, got ${bytes}`);
}

/** Returns the common top-level folder of all paths as a prefix `folder/`, or "" if SKILL.md is at the top. */
function topOf(entries: readonly SkillEntry[]): string {
  if (entries.some(({ path, isFolder }) => !isFolder && path === skillFileName)) return "";
  const tops = [...new Set(entries.map(({ path }) => path.split("/")[0] ?? ""))];
  if (tops.length <= 1) return `${tops[0] ?? ""}/`;
  const names = tops.slice(0, 3).map(shown).join(", ");
  throw invalidSkill(`expected one top-level folder with the file ${skillFileName}, got ${tops.length}: ${names}`);
}
