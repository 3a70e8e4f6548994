// Work folders: one folder per session, shared by its Python process and its shell commands, in a private folder of this process.
// On the command line, the user's folder is used instead (userFolder); nothing in it is removed, replaced or renamed.
import { randomBytes } from "node:crypto";
import { constants, copyFile, mkdir, mkdtemp, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { removeFolder } from "../../../runtime/host/remove-folder.ts";
import { temporaryFolderOf } from "../../../runtime/sandbox/linux/bubblewrap.ts";
import type { ConfinedCommand } from "../../../runtime/sandbox/sandbox.ts";
import type { FileToMount } from "../../api/agent/tools.ts";
import { checkedFileName } from "../../files/file-name.ts";
import { SessionSkills } from "./session-skills.ts";
import { stateOf } from "./snapshot.ts";

export interface WorkFolder {
  /** Path of the work folder on the host. */
  readonly path: string;
  readonly skills: SessionSkills;
  /** Path on the host of the session's /tmp. */
  readonly temporary: string;
  /** Private folder of the session, removed with the session. It contains `temporary` and, unless `path` is the user's folder, `path`. */
  readonly session: string;
  /** Whether `path` is the user's folder. */
  readonly isUsers: boolean;
  /**
   * States of the files that the client already has, by name: input files, and outputs that were given to the client. A file is
   * given to the client again when it has changed, or when another run expects it. `run`: run that gave the file to the client;
   * null = an input file.
   */
  readonly known: Map<string, { readonly state: string; readonly run: string | null }>;
}

export class WorkFolders {
  readonly #base: string;
  readonly #maxBytes: number;
  readonly #userFolder: string | null;

  /**
   * `base`: private folder that contains the folders of all sessions. `maxBytes`: maximum size of the files of one request.
   * `userFolder`: work folder of all sessions; null = each session gets its own.
   */
  constructor(base: string, maxBytes: number, userFolder: string | null = null) {
    this.#base = base;
    this.#maxBytes = maxBytes;
    this.#userFolder = userFolder;
  }

  async create(): Promise<WorkFolder> {
    const session = await mkdtemp(join(this.#base, "session-"));
    const own = join(session, "work");
    const temporary = temporaryFolderOf({ workFolder: own });
    await mkdir(temporary, { mode: 0o700 });
    const isUsers = this.#userFolder !== null;
    if (!isUsers) await mkdir(own, { mode: 0o700 });
    const skills = new SessionSkills(join(session, "skills"));
    await mkdir(skills.folder, { mode: 0o700 });
    return { path: this.#userFolder ?? own, temporary, session, isUsers, skills, known: new Map() };
  }

  /**
   * Copies files into a work folder. An existing file with the same name is replaced; an existing folder is renamed. Throws
   * invalid_value for a name that cannot be used and for files that are too large together, storage_unavailable, and unsupported for the
   * user's folder.
   */
  async mount({ path, temporary, isUsers, known }: WorkFolder, files: readonly FileToMount[]): Promise<void> {
    if (isUsers)
      throw new ServerError("unsupported", "files cannot be attached if the tools work in a folder of the user");
    await this.#checkSize(files);
    for (const { name, path: from } of files) {
      const checked = checkedFileName(name, false);
      const to = join(path, checked);
      // The copy is created under a new name and then renamed, so that no link created by a tool is followed.
      const copy = join(temporary, `.mount-${randomBytes(8).toString("hex")}`);
      try {
        await copyFile(from, copy, constants.COPYFILE_EXCL);
        await rename(copy, to).catch(async (error: NodeJS.ErrnoException) => {
          if (error.code !== "EISDIR") throw error;
          await setAside(to);
          await rename(copy, to);
        });
      } catch (error) {
        await rm(copy, { force: true });
        const reason = error instanceof Error ? error.message : String(error);
        throw new ServerError("storage_unavailable", `the file ${checked} could not be given to the tools: ${reason}`);
      }
      const state = await stateOf(to);
      if (state !== null) known.set(checked, { state, run: null });
    }
  }

  async #checkSize(files: readonly FileToMount[]): Promise<void> {
    // A file that cannot be read is reported when it is copied.
    const sizes = await Promise.all(
      files.map(({ path }) =>
        stat(path).then(
          ({ size }) => size,
          () => 0,
        ),
      ),
    );
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    if (bytes <= this.#maxBytes) return;
    const mib = (count: number) => `${Math.ceil(count / 2 ** 20)} MiB`;
    const message = `the files of the request have ${mib(bytes)} together; the work folder takes ${mib(this.#maxBytes)} (max_disk_mb); send fewer`;
    throw new ServerError("invalid_value", message, { param: "files" });
  }

  /** Removes the private folder of a session. All processes of the session must have ended. */
  async remove({ session }: WorkFolder): Promise<void> {
    await removeFolder(session);
  }

  /** Removes the folders of all sessions, including those left by an earlier tools process of this server. */
  async removeAll(): Promise<void> {
    const names = await readdir(this.#base);
    await Promise.all(names.map((name) => removeFolder(join(this.#base, name))));
  }
}

/** Returns the folder options of a command that runs in a work folder. Only the user's folder comes with a separate temporary folder. */
export function foldersOf({
  path,
  temporary,
  isUsers,
}: WorkFolder): Pick<ConfinedCommand, "workFolder" | "temporaryFolder"> {
  return isUsers ? { workFolder: path, temporaryFolder: temporary } : { workFolder: path };
}

/**
 * Renames a folder to a hidden name in the same parent folder. It is removed with the session and not now, because running
 * processes of the session could replace folders by links, and the removal would follow the links out of the work folder.
 */
async function setAside(folder: string): Promise<void> {
  await rename(folder, join(dirname(folder), `.replaced-${randomBytes(8).toString("hex")}`));
}
