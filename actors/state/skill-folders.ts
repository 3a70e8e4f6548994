// Skill folders: the skills in `skills_dir`, a folder of the operator. Each subfolder with a SKILL.md is a skill with one
// version. The folders are read at each request, so changes take effect at once.
import { createHash } from "node:crypto";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { type Skill, skillLimits } from "../api/agent/skills.ts";
import { skillFileName } from "../files/skills/skill-entries.ts";
import { readSkill } from "../files/skills/skill-folder.ts";

/** A skill in skills_dir, and the path of its files. */
export interface FolderSkill {
  readonly skill: Skill;
  readonly folder: string;
  /** String that changes when the skill's files change (SkillContent.state). */
  readonly state: string;
}

/** Logs a problem that does not make a request fail. */
export type Warn = (fields: object, message: string) => void;

export class SkillFolders {
  readonly #folder: string | null;
  readonly #warn: Warn;
  /** Problems that have been logged, by folder name. */
  readonly #reported = new Map<string, string>();
  #reading: Promise<readonly FolderSkill[]> | null = null;

  /** `folder`: null if skills_dir is not set. */
  constructor(folder: string | null, warn: Warn) {
    this.#folder = folder;
    this.#warn = warn;
  }

  /** Throws config_invalid if the folder does not exist. */
  async check(): Promise<void> {
    if (this.#folder === null) return;
    const found = await stat(this.#folder).catch(() => null);
    if (found?.isDirectory()) return;
    throw new ServerError("config_invalid", `skills_dir expects an existing folder; got "${this.#folder}"`, {
      param: "skills_dir",
    });
  }

  /** Returns the skills, newest first. Concurrent calls share one scan of the folder. */
  async list(): Promise<readonly FolderSkill[]> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = null;
    });
    return await this.#reading;
  }

  async find(id: string): Promise<FolderSkill | null> {
    if (this.#folder === null) return null;
    return (await this.list()).find(({ skill }) => skill.id === id) ?? null;
  }

  async #read(): Promise<readonly FolderSkill[]> {
    if (this.#folder === null) return [];
    const names = (await this.#names(this.#folder)).sort();
    if (names.length > skillLimits.maxSkills) {
      this.#report("", `it has ${names.length} folders; only ${skillLimits.maxSkills} are read`);
    }
    const skills: FolderSkill[] = [];
    for (const name of names.slice(0, skillLimits.maxSkills)) {
      const skill = await this.#skillOf(join(this.#folder, name), name);
      if (skill !== null) skills.push(skill);
    }
    return skills.sort((one, other) => other.skill.createdMs - one.skill.createdMs);
  }

  async #names(folder: string): Promise<string[]> {
    try {
      const entries = await readdir(folder, { withFileTypes: true });
      return entries.filter((entry) => entry.isDirectory() || entry.isSymbolicLink()).map(({ name }) => name);
    } catch (error) {
      throw new ServerError("storage_unavailable", `skills_dir cannot be read now: ${String(error)}`, { cause: error });
    }
  }

  /** Returns the skill in a folder; null = the folder contains no valid skill. An invalid skill is logged. */
  async #skillOf(folder: string, name: string): Promise<FolderSkill | null> {
    const found = await stat(join(folder, skillFileName)).catch(() => null);
    if (found === null) return null;
    try {
      const { name: ownName, description, bytes, state } = await readSkill(folder);
      this.#reported.delete(name);
      const createdMs = Math.floor(found.mtimeMs);
      const version = { version: 1, name: ownName, description, createdMs, bytes };
      return { skill: { id: idOf(name), displayTitle: null, createdMs, versions: [version] }, folder, state };
    } catch (error) {
      this.#report(name, toErrorRecord(error).message);
      return null;
    }
  }

  #report(name: string, reason: string): void {
    if (this.#reported.get(name) === reason) return;
    this.#reported.set(name, reason);
    this.#warn({ folder: name, reason }, "a folder of skills_dir is no skill that can be used, and is left out");
  }
}

/** Returns the id of a skill, which depends only on the name of its folder. */
function idOf(name: string): string {
  return `skill_${createHash("sha256").update(`skills_dir\0${name}`).digest("hex").slice(0, 32)}`;
}
