// Work folders: one folder a session, shared by its Python process and its shell commands, in a private folder of this process.
import { randomBytes } from "node:crypto";
import { constants, copyFile, mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { createProcessFolder } from "../../runtime/host/process-folder.ts";
import { temporaryFolderOf } from "../../runtime/sandbox/bubblewrap.ts";
import type { FileToMount } from "../api/agent/tools.ts";
import { checkedFileName } from "../files/file-name.ts";

export interface WorkFolder {
  /** Path on the host. */
  readonly path: string;
  /** Names of the files that were mounted. They are inputs, so they are not surfaced as outputs unless they change. */
  readonly mounted: Set<string>;
}

export class WorkFolders {
  readonly #base: string;

  /** `parents`: folders in which the private folder may be created; the first one that is writable is used. */
  constructor(parents: readonly [...string[], string]) {
    this.#base = createProcessFolder("tools", parents);
  }

  async create(): Promise<WorkFolder> {
    const session = await mkdtemp(join(this.#base, "session-"));
    const path = join(session, "work");
    await mkdir(path, { mode: 0o700 });
    await mkdir(temporaryFolderOf(path), { mode: 0o700 });
    return { path, mounted: new Set() };
  }

  /** Copies files into a folder. A file that exists already is replaced. Throws invalid_value for a name that cannot be used. */
  async mount({ path, mounted }: WorkFolder, files: readonly FileToMount[]): Promise<void> {
    for (const { name, path: from } of files) {
      const checked = checkedFileName(name, false);
      // The copy is made with a new name and renamed, so that no link of a tool is followed.
      const copy = join(temporaryFolderOf(path), `.mount-${randomBytes(8).toString("hex")}`);
      await copyFile(from, copy, constants.COPYFILE_EXCL);
      await rename(copy, join(path, checked));
      mounted.add(checked);
    }
  }

  async remove({ path }: WorkFolder): Promise<void> {
    await rm(join(path, ".."), { recursive: true, force: true });
  }

  async removeAll(): Promise<void> {
    await rm(this.#base, { recursive: true, force: true });
  }
}
