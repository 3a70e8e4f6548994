// Skill upload: opens the files of an upload, which is a zip archive or the file parts of a form.
import { createReadStream } from "node:fs";
import { open, stat } from "node:fs/promises";
import { join } from "node:path";
import type { SkillUpload } from "../../api/agent/skills.ts";
import { openArchive } from "./read-archive.ts";
import { arrangedFiles, checkedPath, invalidSkill, type SkillEntry } from "./skill-entries.ts";

/** Magic bytes of a zip archive: a local header, or the end record of an empty archive. */
const ARCHIVE_MARKS = ["504b0304", "504b0506"];

export interface OpenUpload {
  readonly files: readonly SkillEntry[];
  close(): void;
}

/** Opens an upload and checks all its entries. Throws invalid_value. */
export async function openUpload(parts: SkillUpload["files"], stagingFolder: string): Promise<OpenUpload> {
  const [first, second] = parts;
  if (first === undefined) throw invalidSkill("expected a zip archive or the files of a skill, got no file");
  const path = join(stagingFolder, first.staged);
  if (second === undefined && (/\.(?:zip|skill)$/i.test(first.name) || (await isArchive(path)))) {
    return await openedArchive(path);
  }
  const entries = await Promise.all(parts.map((part) => partEntry(part, stagingFolder)));
  return { files: arrangedFiles(entries), close: () => {} };
}

async function openedArchive(path: string): Promise<OpenUpload> {
  const archive = await openArchive(path);
  try {
    return { files: arrangedFiles(archive.entries), close: archive.close };
  } catch (error) {
    archive.close();
    throw error;
  }
}

async function partEntry({ name, staged }: SkillUpload["files"][number], stagingFolder: string): Promise<SkillEntry> {
  const path = checkedPath(name);
  const at = join(stagingFolder, staged);
  const { size: bytes } = await stat(at);
  return { path, isFolder: false, bytes, isExecutable: false, read: async () => createReadStream(at) };
}

async function isArchive(path: string): Promise<boolean> {
  const file = await open(path, "r");
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(4), 0, 4, 0);
    return ARCHIVE_MARKS.includes(buffer.toString("hex", 0, bytesRead));
  } finally {
    await file.close();
  }
}
