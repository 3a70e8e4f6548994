// Skill contents: the files of uploaded skills, one folder per version, in the state folder. A version is written to the staging
// folder on the same file system, then renamed into the content folder.
import { randomBytes } from "node:crypto";
import { createWriteStream } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { ServerError } from "../../runtime/errors.ts";
import { removeFolder } from "../../runtime/host/remove-folder.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { SkillUpload } from "../api/agent/skills.ts";
import { openUpload } from "../files/skills/read-upload.ts";
import { packedSkill, type ReadSkill, readSkill, writeSkill } from "../files/skills/skill-folder.ts";
import { syncFolder } from "./file-contents.ts";

/** Age in milliseconds from which a staged file or folder counts as abandoned. */
const STAGED_MS = 3_600_000;
/** Age in milliseconds from which a content without metadata is removed. By then, the metadata of a valid content is stored. */
const ORPHAN_MS = 10 * 60_000;
/** Time limit in ms for unpacking or packing one version. */
const WORK_MS = 60_000;
/** Maximum number of archives that are read or written concurrently. */
const PLACES = 2;
/** Client name for packing and unpacking by the server itself, for fair scheduling between clients. */
const OWN_CLIENT = "";
const stagedPattern = /^[A-Za-z0-9_-]{1,128}$/;

/** A skill that has been unpacked in the staging folder. */
export interface UnpackedSkill extends ReadSkill {
  readonly staged: string;
}

export class SkillContents {
  readonly stagingFolder: string;
  readonly #folder: string;
  readonly #gate = new Gate(PLACES);

  constructor(folder: string) {
    this.#folder = join(folder, "content");
    this.stagingFolder = join(folder, "staging");
  }

  async open(): Promise<void> {
    for (const folder of [this.#folder, this.stagingFolder]) await mkdir(folder, { recursive: true, mode: 0o700 });
  }

  /** Returns the folder of a version. */
  folderOf(id: string, version: number): string {
    return join(this.#folder, contentName(id, version));
  }

  /** Unpacks an upload in the staging folder. Throws invalid_value, storage_unavailable. */
  async unpack({ files, client }: Pick<SkillUpload, "files" | "client">): Promise<UnpackedSkill> {
    for (const { staged } of files) checkStaged(staged);
    const staged = newName("skill");
    const folder = join(this.stagingFolder, staged);
    return await this.#work(client, async (signal) => {
      const upload = await openUpload(files, this.stagingFolder);
      try {
        await writeSkill(upload.files, folder, { isDurable: true, signal });
        return { ...(await readSkill(folder)), staged };
      } catch (error) {
        await removeFolder(folder).catch(() => {});
        throw error;
      } finally {
        upload.close();
      }
    });
  }

  /**
   * Moves an unpacked version into the content folder. Returns false if the content of this version already exists, because
   * another server is storing it, or was killed before it stored the metadata. Throws storage_unavailable.
   */
  async adopt({ staged }: UnpackedSkill, id: string, version: number): Promise<boolean> {
    try {
      await rename(join(this.stagingFolder, staged), this.folderOf(id, version));
      await syncFolder(this.#folder);
      return true;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "ENOTEMPTY" || code === "EEXIST") return false;
      return unavailable(error);
    }
  }

  /** Moves a content back to the staging folder, to undo `adopt`. */
  async giveBack({ staged }: UnpackedSkill, id: string, version: number): Promise<void> {
    await rename(this.folderOf(id, version), join(this.stagingFolder, staged)).catch(() => {});
  }

  /** Packs the folder of a version as a zip archive in the staging folder. Returns its name. */
  async pack(folder: string, client: string): Promise<string> {
    const staged = newName("download");
    const path = join(this.stagingFolder, staged);
    return await this.#work(client, async (signal) => {
      try {
        const archive = packedSkill(await readSkill(folder));
        await pipeline(archive, createWriteStream(path, { flags: "wx", mode: 0o600 }), { signal });
        return staged;
      } catch (error) {
        await rm(path, { force: true });
        throw error;
      }
    });
  }

  async has(id: string, version: number): Promise<boolean> {
    return (await stat(this.folderOf(id, version)).catch(() => null)) !== null;
  }

  /** Returns a zip archive with the files of a version. */
  async archive(id: string, version: number): Promise<Uint8Array> {
    const staged = await this.pack(this.folderOf(id, version), OWN_CLIENT);
    try {
      return await readFile(join(this.stagingFolder, staged)).catch(unavailable);
    } finally {
      await this.discard(staged);
    }
  }

  /** Unpacks the archive of a version that another replica has stored. */
  async restore(id: string, version: number, archive: Uint8Array): Promise<void> {
    const staged = newName("copy");
    let unpacked: UnpackedSkill | null = null;
    try {
      await writeFile(join(this.stagingFolder, staged), archive, { flag: "wx", mode: 0o600 }).catch(unavailable);
      unpacked = await this.unpack({ files: [{ name: "skill.zip", staged }], client: OWN_CLIENT });
      await this.adopt(unpacked, id, version);
    } finally {
      await this.discard(staged, ...(unpacked === null ? [] : [unpacked.staged]));
    }
  }

  /** Removes staged files or folders. Ignores names that do not exist. */
  async discard(...staged: readonly string[]): Promise<void> {
    for (const name of staged) await removeFolder(join(this.stagingFolder, checkStaged(name))).catch(() => {});
  }

  /** Removes the content of a version. It is renamed first, so that no reader sees only some of its files. */
  async remove(id: string, version: number): Promise<void> {
    const removed = newName("removed");
    await rename(this.folderOf(id, version), join(this.stagingFolder, removed)).catch(() => {});
    await this.discard(removed);
  }

  /** Removes abandoned staged files, and contents for which `isKept` returns false. `now`: milliseconds since 1970. */
  async sweep(now: number, isKept: (name: string) => boolean): Promise<void> {
    await removeOld(this.stagingFolder, now - STAGED_MS, () => true);
    await removeOld(this.#folder, now - ORPHAN_MS, (name) => !isKept(name));
  }

  async #work<T>(client: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return await this.#gate.pass(() => work(AbortSignal.timeout(WORK_MS)).catch(unavailable), client);
  }
}

/** Returns the name of the folder that contains the files of a version. */
export function contentName(id: string, version: number): string {
  return `${id}_v${version}`;
}

async function removeOld(folder: string, before: number, isGone: (name: string) => boolean): Promise<void> {
  for (const name of await readdir(folder)) {
    if (!isGone(name)) continue;
    const path = join(folder, name);
    const age = await stat(path).catch(() => null);
    if (age !== null && age.ctimeMs <= before) await removeFolder(path);
  }
}

function newName(kind: string): string {
  return `${kind}-${randomBytes(16).toString("hex")}`;
}

function checkStaged(name: string): string {
  if (stagedPattern.test(name)) return name;
  throw new ServerError("invalid_value", `expected the name of a staged file, got ${JSON.stringify(name)}`);
}

function unavailable(error: unknown): never {
  if (error instanceof ServerError) throw error;
  const isLate = error instanceof Error && ["AbortError", "TimeoutError"].includes(error.name);
  const reason = isLate ? `it took longer than ${WORK_MS / 1000} s` : String(error);
  throw new ServerError("storage_unavailable", `the skill cannot be stored or read now: ${reason}`, { cause: error });
}
