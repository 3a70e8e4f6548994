// Outputs: files that a tool call has created or changed, and files that it was asked for. They are copied to the staging folder
// of the file store. The work folder is controlled by the model's code, so no link is followed and every bound is checked.
import { randomBytes } from "node:crypto";
import { constants, type Dirent } from "node:fs";
import { type FileHandle, lstat, open, readdir, readlink, realpath, rm } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import { type FileToStore, fileLimits } from "../api/agent/files.ts";
import { checkedFileName } from "../files/file-name.ts";
import type { WorkFolder } from "./work-folders.ts";

/** Maximum number of files that one call surfaces by itself. */
const MAX_SURFACED = 64;
const MAX_SCANNED = 16_384;
const PIECE_BYTES = 256 * 1024;
const ignoredNames = /^\.|^__pycache__$|\.pyc$/;

/** State of the files in a work folder, by relative path: changes with each write. */
export type Snapshot = ReadonlyMap<string, string>;

export async function snapshot({ path }: WorkFolder): Promise<Snapshot> {
  const found = new Map<string, string>();
  const folders = [path];
  for (let folder = folders.pop(); folder !== undefined && found.size < MAX_SCANNED; folder = folders.pop()) {
    let entries: Dirent[];
    try {
      entries = await readdir(folder, { withFileTypes: true });
    } catch {
      continue;
    }
    for (const entry of entries) {
      if (ignoredNames.test(entry.name)) continue;
      const whole = join(folder, entry.name);
      if (entry.isDirectory()) folders.push(whole);
      if (!entry.isFile()) continue;
      const stat = await lstat(whole, { bigint: true }).catch(() => null);
      if (stat !== null) found.set(relative(path, whole), `${stat.ino} ${stat.size} ${stat.mtimeNs} ${stat.ctimeNs}`);
    }
  }
  return found;
}

export interface OutputCall {
  readonly folder: WorkFolder;
  readonly before: Snapshot;
  /** Files that the call names. A missing one becomes a failure. */
  readonly named: readonly { readonly name: string; readonly format?: string | undefined }[];
  /** Files that the request expects: they are surfaced when they exist. */
  readonly expected: readonly { readonly name: string; readonly format: string | null }[];
  readonly stagingFolder: string;
  /** Fields of each file to store, and the number of the first one. */
  readonly common: Pick<FileToStore, "source" | "session" | "client">;
  readonly run: string;
  readonly round: number;
  readonly firstFile: number;
}

export interface FoundOutputs {
  readonly files: readonly FileToStore[];
  /** Number of changed files that were not surfaced because there were too many. */
  readonly omitted: number;
}

export async function outputsOf(call: OutputCall): Promise<FoundOutputs> {
  const after = await snapshot(call.folder);
  const changed = [...after.keys()]
    .filter((name) => call.before.get(name) !== after.get(name) && !call.folder.mounted.has(name))
    .sort();
  const named = call.named.map(({ name, format }) => ({
    name: normalised(name),
    format: format ?? null,
    isNamed: true,
  }));
  const names = new Set(named.map(({ name }) => name));
  const expected = call.expected.filter(({ name }) => !names.has(name) && after.has(name));
  for (const { name } of expected) names.add(name);
  const others = changed.filter((name) => !names.has(name));
  const wanted = [
    ...named,
    ...expected.map(({ name, format }) => ({ name, format, isNamed: false })),
    ...others.slice(0, MAX_SURFACED).map((name) => ({ name, format: null, isNamed: false })),
  ];
  const files: FileToStore[] = [];
  for (const { name, format, isNamed } of wanted) {
    const file = await stored(call, name, format, call.firstFile + files.length);
    if (file.failure === null || isNamed) files.push(file);
  }
  return { files, omitted: Math.max(0, others.length - MAX_SURFACED) };
}

/** Returns a path relative to the work folder, as the model may write it in another way. */
function normalised(name: string): string {
  return name.replace(/^(?:\/work\/|\.\/)+/, "");
}

async function stored(call: OutputCall, name: string, format: string | null, index: number): Promise<FileToStore> {
  const { run, round, common, folder, stagingFolder } = call;
  const id = `file_${run}_r${round}_${index}`;
  const base = { ...common, id, format, purpose: "agent_output" } as const;
  let checked: string;
  try {
    checked = checkedFileName(name, true);
  } catch {
    const failure = {
      code: "invalid_name",
      message: `${JSON.stringify(name.slice(0, 200))} cannot be the name of a file`,
    };
    return { ...base, name: "unnamed", staged: null, failure };
  }
  const staged = await stage(folder, checked, stagingFolder);
  return typeof staged === "string"
    ? { ...base, name: checked, staged, failure: null }
    : { ...base, name: checked, staged: null, failure: staged };
}

type Failure = NonNullable<FileToStore["failure"]>;

/** Copies a file to the staging folder. Returns the name of the copy, or why there is none. */
async function stage(folder: WorkFolder, name: string, stagingFolder: string): Promise<string | Failure> {
  let file: FileHandle;
  try {
    file = await open(join(folder.path, name), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch {
    return { code: "not_produced", message: `the tool did not create the file ${name}` };
  }
  try {
    const { size, nlink } = await file.stat();
    const stat = await file.stat();
    // A file with several names may be one that the folder does not own; a path through a linked folder leads elsewhere.
    if (!stat.isFile() || nlink > 1 || !(await isInside(file, folder))) {
      return { code: "not_a_file", message: `${name} is not a regular file of the working directory` };
    }
    if (size > fileLimits.maxFileBytes) {
      return { code: "too_large", message: `${name} has ${size} bytes; at most ${fileLimits.maxFileBytes} are kept` };
    }
    const staged = `output-${randomBytes(16).toString("hex")}`;
    const isWhole = await copied(file, join(stagingFolder, staged));
    return isWhole ? staged : { code: "too_large", message: `${name} grew while it was read` };
  } finally {
    await file.close();
  }
}

/** Returns whether an open file lies in the work folder, whatever links its path had. */
async function isInside(file: FileHandle, folder: WorkFolder): Promise<boolean> {
  const root = await realpath(folder.path);
  const target = await readlink(`/proc/self/fd/${file.fd}`).catch(() => null);
  // Without /proc there is no sandbox either: the code can read every file of the server itself.
  return target === null || target.startsWith(root + sep);
}

/** Copies a file, at most maxFileBytes bytes. Returns whether it was copied as a whole. */
async function copied(from: FileHandle, path: string): Promise<boolean> {
  const to = await open(path, "wx", 0o600);
  try {
    const buffer = Buffer.allocUnsafe(PIECE_BYTES);
    for (let at = 0; at <= fileLimits.maxFileBytes; ) {
      const { bytesRead } = await from.read(buffer, 0, PIECE_BYTES, at);
      if (bytesRead === 0) return true;
      await to.write(buffer, 0, bytesRead);
      at += bytesRead;
    }
  } finally {
    await to.close();
  }
  await rm(path, { force: true });
  return false;
}
