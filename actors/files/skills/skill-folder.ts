// Skill folder: writes the files of an upload as a folder, reads the folder of a skill with all limits checked, copies it, and
// packs it as a zip archive.
import { createReadStream, createWriteStream } from "node:fs";
import { lstat, mkdir, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { ZipFile } from "yazl";
import { skillLimits } from "../../api/agent/skills.ts";
import { type FrontMatter, frontMatterOf, maxFrontMatterBytes } from "./front-matter.ts";
import { arrangedFiles, checkedPath, invalidSkill, type SkillEntry, shown, skillFileName } from "./skill-entries.ts";

/** A skill folder as read from disk: its front matter and its files. */
export interface ReadSkill extends FrontMatter {
  readonly files: readonly SkillEntry[];
  readonly bytes: number;
  /** String that changes when a file is changed, added or removed. */
  readonly state: string;
}

/** A file on disk, with its modification time in milliseconds. */
type FileOnDisk = SkillEntry & { readonly changedMs: number };

/**
 * Writes files to a new folder, which must not exist. `isDurable`: resolve only after the bytes are flushed to disk. Throws
 * invalid_value, or the error of the file system.
 */
export async function writeSkill(
  files: readonly SkillEntry[],
  folder: string,
  { isDurable, signal }: { readonly isDurable: boolean; readonly signal?: AbortSignal },
): Promise<void> {
  await mkdir(folder, { mode: 0o700 });
  for (const { path, isExecutable, read } of files) {
    const to = join(folder, path);
    await mkdir(dirname(to), { recursive: true, mode: 0o700 });
    const written = createWriteStream(to, { flags: "wx", mode: modeOf(isExecutable), flush: isDurable });
    await pipeline(await read(), written, signal === undefined ? {} : { signal });
  }
}

/** Reads the folder of a skill. Throws invalid_value if it is not a skill, contains a link or a special file, or exceeds a limit. */
export async function readSkill(folder: string): Promise<ReadSkill> {
  const entries = await entriesBelow(folder);
  const files = arrangedFiles(entries);
  const matter = frontMatterOf(await headOf(files.find(({ path }) => path === skillFileName) as SkillEntry));
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  const changedMs = Math.max(...entries.map((entry) => entry.changedMs));
  return { ...matter, files, bytes, state: `${changedMs} ${bytes} ${files.length}` };
}

/** Copies the folder of a skill to a folder that must not exist. Throws the errors of `readSkill`. */
export async function copySkill(from: string, to: string): Promise<void> {
  await writeSkill((await readSkill(from)).files, to, { isDurable: false });
}

/** Returns a zip archive of the files, in a top-level folder named after the skill. */
export function packedSkill({ name, files }: Pick<ReadSkill, "name" | "files">): Readable {
  const zip = new ZipFile();
  for (const { path, isExecutable, read } of files) {
    const mode = isExecutable ? 0o100755 : 0o100644;
    zip.addReadStreamLazy(`${name}/${path}`, { mode }, (opened) => {
      const content = read().then((stream) => stream.on("error", (error) => zip.emit("error", error)));
      content.then(
        (stream) => opened(null, stream),
        (error) => zip.emit("error", error),
      );
    });
  }
  zip.end();
  const output = zip.outputStream as Readable;
  zip.on("error", (error) => output.destroy(error));
  return output;
}

/** Returns the mode of a file: read-only, and executable if it was executable in the upload. */
function modeOf(isExecutable: boolean): number {
  return isExecutable ? 0o500 : 0o400;
}

async function entriesBelow(folder: string): Promise<readonly FileOnDisk[]> {
  const entries: FileOnDisk[] = [];
  // Folders left to read. Their names are kept as stored on disk, because the checked path of an entry may have another Unicode form.
  const open = [""];
  for (let below = open.pop(); below !== undefined; below = open.pop()) {
    for (const child of await readdir(join(folder, below))) {
      const name = below === "" ? child : `${below}/${child}`;
      const entry = await entryAt(folder, name);
      entries.push(entry);
      if (entry.isFolder) open.push(name);
      if (entries.length > 4 * skillLimits.maxFiles) {
        throw invalidSkill(
          `expected at most ${skillLimits.maxFiles} files in a skill, got more than ${entries.length}`,
        );
      }
    }
  }
  return entries;
}

async function entryAt(folder: string, name: string): Promise<FileOnDisk> {
  const path = checkedPath(name);
  const at = join(folder, name);
  const found = await lstat(at);
  const isFolder = found.isDirectory();
  if (!isFolder && !found.isFile())
    throw invalidSkill(`expected files and folders; ${shown(path)} is a link or a device`);
  const bytes = isFolder ? 0 : found.size;
  const isExecutable = (found.mode & 0o100) !== 0;
  return { path, isFolder, bytes, isExecutable, changedMs: found.ctimeMs, read: async () => createReadStream(at) };
}

async function headOf({ read }: SkillEntry): Promise<Uint8Array> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of await read()) {
    pieces.push(piece as Buffer);
    bytes += (piece as Buffer).length;
    if (bytes >= maxFrontMatterBytes) break;
  }
  return Buffer.concat(pieces).subarray(0, maxFrontMatterBytes);
}
