// Skill store: uploaded skills, with metadata in a store and files on disk, and the skills of skills_dir. All versions of a skill
// are in one entry, so that the number of a new version is chosen and stored in one transaction.
import { randomBytes } from "node:crypto";
import { wallTime } from "../../runtime/clock.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { KeptEntry, Store } from "../../runtime/store/store.ts";
import {
  type Skill,
  type SkillContent,
  type Skills,
  type SkillUpload,
  skillLimits,
  type VersionOfSkill,
  versionOf,
} from "../api/agent/skills.ts";
import { contentName, type SkillContents, type UnpackedSkill } from "./skill-contents.ts";
import type { SkillFolders } from "./skill-folders.ts";

/** Metadata of a skill. */
export interface KeptSkill extends Omit<Skill, "id"> {
  /** Number that the next version will get. */
  readonly nextVersion: number;
}

type Kept = KeptEntry<KeptSkill> & { readonly key: string };

export interface SkillStoreOptions {
  readonly store: Store<KeptSkill>;
  readonly contents: SkillContents;
  readonly folders: SkillFolders;
  /** Whether the files of versions are also in the store, as archives, for other replicas. The folders on disk are then only copies. */
  readonly sharesContents?: boolean;
  /** Returns milliseconds since 1970. */
  readonly now?: () => number;
}

const SHARE = "skills";
const PAGE = 256;

export class SkillStore implements Skills {
  readonly #options: SkillStoreOptions;
  readonly #now: () => number;
  /** Returns the system time in ms, to compute the age of files. wallTime() is unsuitable, as it ignores changes of the clock. */
  readonly #diskNow: () => number;
  /** Promise of the latest addition. Additions are stored one after another, so that concurrent ones cannot exceed the limits together. */
  #storing: Promise<unknown> = Promise.resolve();
  /** Time of the latest addition, in milliseconds since 1970. */
  #lastMs = 0;

  constructor(options: SkillStoreOptions) {
    this.#options = options;
    this.#now = options.now ?? wallTime;
    this.#diskNow = options.now ?? Date.now;
  }

  get stagingFolder(): string {
    return this.#options.contents.stagingFolder;
  }

  async add(upload: SkillUpload): Promise<Skill> {
    const { contents } = this.#options;
    let unpacked: UnpackedSkill | null = null;
    try {
      if (upload.skill !== null) await this.#mustBeUploaded(upload.skill);
      unpacked = await contents.unpack(upload);
      const { displayTitle, skill } = upload;
      const stored = this.#storing.then(() => this.#store(unpacked as UnpackedSkill, skill, displayTitle));
      this.#storing = stored.catch(() => {});
      return await stored;
    } finally {
      await contents.discard(...upload.files.map(({ staged }) => staged));
      if (unpacked !== null) await contents.discard(unpacked.staged);
    }
  }

  async list(): Promise<readonly Skill[]> {
    const folders = await this.#options.folders.list();
    const uploaded = (await this.#all()).map(skillOf);
    return [...folders.map(({ skill }) => skill), ...uploaded].sort((one, other) => other.createdMs - one.createdMs);
  }

  async find(id: string): Promise<Skill | null> {
    const kept = await this.#options.store.get(id);
    if (kept !== null) return skillOf({ ...kept, key: id });
    return (await this.#options.folders.find(id))?.skill ?? null;
  }

  async content({ id, version }: VersionOfSkill): Promise<SkillContent | null> {
    const { folders } = this.#options;
    const own = await folders.find(id);
    const skill = own?.skill ?? (await this.find(id));
    const found = skill === null ? undefined : versionOf(skill, version);
    if (found === undefined) return null;
    const folder = own?.folder ?? (await this.#folderOf(id, found.version));
    return { ...found, id, folder, state: own?.state ?? contentName(id, found.version) };
  }

  async pack({ client, ...version }: Parameters<Skills["pack"]>[0]): ReturnType<Skills["pack"]> {
    const found = await this.content(version);
    if (found === null) return null;
    return { name: found.name, staged: await this.#options.contents.pack(found.folder, client) };
  }

  async delete(id: string): Promise<boolean> {
    const { store, contents } = this.#options;
    const kept = await this.#uploaded(id);
    if (kept === null || !(await store.delete(id))) return false;
    for (const { version } of kept.head.versions) await contents.remove(id, version);
    return true;
  }

  async deleteVersion({ id, version }: { readonly id: string; readonly version: number }): Promise<boolean> {
    const { store, contents } = this.#options;
    for (;;) {
      const kept = await this.#uploaded(id);
      const versions = kept?.head.versions.filter((one) => one.version !== version) ?? [];
      if (kept === null || versions.length === kept.head.versions.length) return false;
      if (versions.length === 0) {
        throw new ServerError("conflict", "expected a skill with other versions; delete the skill instead", {
          param: "version",
        });
      }
      const { [archiveName(version)]: _, ...parts } = kept.parts;
      if (!(await store.compareAndSet(id, kept.version, { ...kept, parts, head: { ...kept.head, versions } })))
        continue;
      await contents.remove(id, version);
      return true;
    }
  }

  /** Removes contents without metadata, and abandoned staged files. */
  async sweep(): Promise<void> {
    await this.#options.store.sweep();
    const kept = new Set(
      (await this.#all()).flatMap(({ key, head }) => head.versions.map(({ version }) => contentName(key, version))),
    );
    await this.#options.contents.sweep(this.#diskNow(), (name) => kept.has(name));
  }

  async onStop(): Promise<void> {
    await this.#options.store.close();
  }

  /** Stores an unpacked upload: first its content, then its metadata. */
  async #store(unpacked: UnpackedSkill, skill: string | null, displayTitle: string | null): Promise<Skill> {
    await this.#checkRoom(unpacked.bytes, skill === null);
    // Skills are listed in the order of their creation times, so each time must be unique.
    const createdMs = Math.max(this.#now(), this.#lastMs + 1);
    this.#lastMs = createdMs;
    const { name, description, bytes } = unpacked;
    const of = (version: number) => ({ version, name, description, createdMs, bytes });
    if (skill === null) {
      const id = `skill_${randomBytes(16).toString("hex")}`;
      const head = { displayTitle, createdMs, nextVersion: 2, versions: [of(1)] };
      await this.#put(unpacked, id, null, head);
      return { id, displayTitle, createdMs, versions: head.versions };
    }
    for (let taken = 0; ; ) {
      const kept = await this.#mustBeUploaded(skill);
      const { head } = kept;
      if (head.versions.length >= skillLimits.maxVersions) {
        throw full(`a skill has at most ${skillLimits.maxVersions} versions; delete old ones`);
      }
      const version = Math.max(head.nextVersion, taken + 1);
      const next = { ...head, nextVersion: version + 1, versions: [...head.versions, of(version)] };
      const outcome = await this.#put(unpacked, skill, kept, next);
      if (outcome === "stored") return skillOf({ ...kept, key: skill, head: next });
      if (outcome === "taken") taken = version;
    }
  }

  /**
   * Stores the content of the last version, and then the metadata. Returns `taken` if the content of this version already exists,
   * and `changed` if another server has changed the skill; the content is then back in the staging folder.
   */
  async #put(
    unpacked: UnpackedSkill,
    id: string,
    kept: Kept | null,
    head: KeptSkill,
  ): Promise<"stored" | "taken" | "changed"> {
    const { store, contents } = this.#options;
    const { version } = head.versions[head.versions.length - 1] as Skill["versions"][number];
    if (!(await contents.adopt(unpacked, id, version))) return "taken";
    let isStored = false;
    try {
      const archive = this.#options.sharesContents ? await contents.archive(id, version) : null;
      const parts = { ...kept?.parts, ...(archive === null ? {} : { [archiveName(version)]: archive }) };
      isStored = await store.compareAndSet(id, kept?.version ?? null, { head, share: SHARE, parts, expiresAt: null });
    } finally {
      if (!isStored) await contents.giveBack(unpacked, id, version);
    }
    return isStored ? "stored" : "changed";
  }

  /** Returns the folder of an uploaded version. If another replica has stored the version, its archive is unpacked first. */
  async #folderOf(id: string, version: number): Promise<string> {
    const { store, contents, sharesContents } = this.#options;
    if (sharesContents && !(await contents.has(id, version))) {
      const archive = (await store.get(id))?.parts[archiveName(version)];
      const bytes = archive === undefined ? null : await store.read(archive.id, 0, archive.bytes);
      if (bytes === null) throw new ServerError("skill_not_found", `the skill ${shownId(id)} was deleted`);
      await contents.restore(id, version, bytes);
    }
    return contents.folderOf(id, version);
  }

  async #checkRoom(bytes: number, isNew: boolean): Promise<void> {
    const all = await this.#all();
    const { maxSkills, maxStoredBytes } = skillLimits;
    if (isNew && all.length >= maxSkills) throw full(`at most ${maxSkills} skills are kept; delete unused ones`);
    const stored = all.flatMap(({ head }) => head.versions).reduce((sum, version) => sum + version.bytes, 0);
    if (stored + bytes > maxStoredBytes) {
      throw full(`all skills have at most ${maxStoredBytes} bytes, of which ${stored} are used; delete unused ones`);
    }
  }

  async #mustBeUploaded(id: string): Promise<Kept> {
    const kept = await this.#uploaded(id);
    if (kept === null) throw new ServerError("skill_not_found", `no skill has the id ${shownId(id)}`);
    return kept;
  }

  /** Returns the entry of an uploaded skill; null = no such skill. Throws unsupported for a skill of skills_dir. */
  async #uploaded(id: string): Promise<Kept | null> {
    const kept = await this.#options.store.get(id);
    if (kept !== null) return { ...kept, key: id };
    if ((await this.#options.folders.find(id)) === null) return null;
    throw new ServerError("unsupported", `the skill ${id} is a folder of skills_dir, which only its operator changes`);
  }

  async #all(): Promise<readonly Kept[]> {
    const all: Kept[] = [];
    for (let cursor: string | null = null; ; ) {
      const page = await this.#options.store.list({ cursor, limit: PAGE });
      all.push(...page.entries);
      cursor = page.cursor;
      if (cursor === null) return all;
    }
  }
}

function skillOf({ key, head: { displayTitle, createdMs, versions } }: Kept): Skill {
  return { id: key, displayTitle, createdMs, versions };
}

/** Returns the name of the stored part that contains the archive of a version. */
function archiveName(version: number): string {
  return `v${version}`;
}

function full(message: string): ServerError {
  return new ServerError("conflict", message);
}

function shownId(id: string): string {
  return JSON.stringify(id.slice(0, 200));
}
