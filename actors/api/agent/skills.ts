// Skills: the interface that http/ and the agent loop use to keep and run skills. A skill is a folder with instructions for the
// model (SKILL.md) and the files that they need. The state thread implements it.

/** Limits of skills. The sizes of uploads are from the contract. */
export const skillLimits = {
  /** Maximum number of skills, and of versions of one skill. */
  maxSkills: 256,
  maxVersions: 100,
  /** Maximum size in bytes of the contents of all uploaded skills. */
  maxStoredBytes: 2 * 2 ** 30,
  /** Maximum size of an upload, and of the files of one version. */
  maxUploadBytes: 50 * 2 ** 20,
  maxBytes: 100 * 2 ** 20,
  maxFiles: 500,
  /** Maximum number of folders of a path within a skill. */
  maxDepth: 16,
  /** Maximum number of skills of one run, and their size in bytes together. */
  maxRunSkills: 32,
  maxRunBytes: 256 * 2 ** 20,
} as const;

/** A version of a skill. Its content never changes, except in `skills_dir`. */
export interface SkillVersion {
  /** Counted from 1. A number is not used again after its version was deleted. */
  readonly version: number;
  /** From SKILL.md: lowercase letters, digits and hyphens. */
  readonly name: string;
  readonly description: string;
  /** Milliseconds since 1970. */
  readonly createdMs: number;
  readonly bytes: number;
}

export interface Skill {
  /** `skill_<hex>` */
  readonly id: string;
  /** Name that the client gave; null: none. */
  readonly displayTitle: string | null;
  /** Milliseconds since 1970. */
  readonly createdMs: number;
  /** At least one version, the oldest first. */
  readonly versions: readonly SkillVersion[];
}

/** An upload: one zip archive, or the files of a skill with their paths. */
export interface SkillUpload {
  /** Skill that gets a new version; null: a new skill. */
  readonly skill: string | null;
  readonly displayTitle: string | null;
  /** `name`: file name, or path below one top-level folder. `staged`: name in the staging folder. */
  readonly files: readonly { readonly name: string; readonly staged: string }[];
  /** Name of the client. Clients take turns while archives are read. */
  readonly client: string;
}

/** A version of a skill with its files. */
export interface SkillContent extends SkillVersion {
  readonly id: string;
  /** Path on the host. The folder must not be changed. */
  readonly folder: string;
  /** Text that changes when the files change. Only the files of a skill in `skills_dir` can change. */
  readonly state: string;
}

/** Identifies a version of a skill. If `version` is null, it is the latest version. */
export interface VersionOfSkill {
  readonly id: string;
  readonly version: number | null;
}

export interface Skills {
  /** Folder for the bytes of uploads and downloads. */
  readonly stagingFolder: string;
  /**
   * Stores an upload and returns its skill, whose last version is the upload. The staged files are removed. Throws
   * invalid_value, skill_not_found, conflict if a limit is reached, unsupported for a skill of skills_dir, storage_unavailable.
   */
  add(upload: SkillUpload): Promise<Skill>;
  /** Returns all skills, the newest first: those of skills_dir, and the uploaded ones. */
  list(): Promise<readonly Skill[]>;
  find(id: string): Promise<Skill | null>;
  /** Returns the content of a version; null: the skill or the version does not exist. */
  content(version: VersionOfSkill): Promise<SkillContent | null>;
  /**
   * Writes a version as a zip archive to the staging folder. The caller removes it. null: the skill or the version does not
   * exist.
   */
  pack(version: VersionOfSkill & { readonly client: string }): Promise<{
    readonly name: string;
    readonly staged: string;
  } | null>;
  /** Returns whether the skill existed. Throws unsupported for a skill of skills_dir. */
  delete(id: string): Promise<boolean>;
  /**
   * Returns whether the version existed. Throws conflict for the only version of a skill, and unsupported for a skill
   * of skills_dir.
   */
  deleteVersion(version: { readonly id: string; readonly version: number }): Promise<boolean>;
}

/** Returns the latest version of a skill. */
export function latestVersion({ versions }: Skill): SkillVersion {
  return versions[versions.length - 1] as SkillVersion;
}

/** Returns a version of a skill, or the latest version if `version` is null. undefined: the version does not exist. */
export function versionOf(skill: Skill, version: number | null): SkillVersion | undefined {
  return version === null ? latestVersion(skill) : skill.versions.find((one) => one.version === version);
}
