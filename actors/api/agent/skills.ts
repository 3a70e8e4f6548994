// Skills: the interface that http/ and the agent loop use to store and run skills. A skill is a folder with instructions for the
// model (SKILL.md) and the files that the instructions need. The state thread implements it.

/** Limits of skills. The upload sizes are from the API contract. */
export const skillLimits = {
  /** Maximum number of skills, and of versions of one skill. */
  maxSkills: 256,
  maxVersions: 100,
  /** Maximum size in bytes of the contents of all uploaded skills. */
  maxStoredBytes: 2 * 2 ** 30,
  /** Maximum size in bytes of an upload, and of all files of one version. */
  maxUploadBytes: 50 * 2 ** 20,
  maxBytes: 100 * 2 ** 20,
  maxFiles: 500,
  /** Maximum depth of folders within a skill. */
  maxDepth: 16,
  /** Maximum number of skills of one run, and their total size in bytes. */
  maxRunSkills: 32,
  maxRunBytes: 256 * 2 ** 20,
} as const;

/** A version of a skill. Its content never changes, except in `skills_dir`. */
export interface SkillVersion {
  /** Version number, counted from 1. The number of a deleted version is not reused. */
  readonly version: number;
  /** Name from SKILL.md: lowercase letters, digits and hyphens. */
  readonly name: string;
  readonly description: string;
  /** Creation time in milliseconds since 1970. */
  readonly createdMs: number;
  readonly bytes: number;
}

export interface Skill {
  /** Skill id: `skill_<hex>`. */
  readonly id: string;
  /** Display name set by the client; null = not set. */
  readonly displayTitle: string | null;
  /** Creation time in milliseconds since 1970. */
  readonly createdMs: number;
  /** Versions, oldest first; never empty. */
  readonly versions: readonly SkillVersion[];
}

/** An upload: one zip archive, or the files of a skill with their paths. */
export interface SkillUpload {
  /** Skill to which the upload adds a version; null = create a new skill. */
  readonly skill: string | null;
  readonly displayTitle: string | null;
  /** `name`: a file name, or a path `folder/…` that begins with the same folder for all files. `staged`: name in the staging folder. */
  readonly files: readonly { readonly name: string; readonly staged: string }[];
  /** Name of the client. Clients take turns while archives are read. */
  readonly client: string;
}

/** A version of a skill with its files. */
export interface SkillContent extends SkillVersion {
  readonly id: string;
  /** Path of the version's folder on the host. The folder must not be changed. */
  readonly folder: string;
  /** String that changes when the files change. Only the files of a skill in `skills_dir` can change. */
  readonly state: string;
}

/** Identifies a version of a skill. `version`: null = the latest version. */
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
  /** Returns all skills, newest first, including those of skills_dir. */
  list(): Promise<readonly Skill[]>;
  find(id: string): Promise<Skill | null>;
  /** Returns the content of a version; null = the skill or the version does not exist. */
  content(version: VersionOfSkill): Promise<SkillContent | null>;
  /**
   * Writes a version as a zip archive to the staging folder. The caller must remove the archive. Returns null if the skill or the
   * version does not exist.
   */
  pack(version: VersionOfSkill & { readonly client: string }): Promise<{
    readonly name: string;
    readonly staged: string;
  } | null>;
  /** Deletes a skill. Returns whether it existed. Throws unsupported for a skill of skills_dir. */
  delete(id: string): Promise<boolean>;
  /**
   * Deletes a version. Returns whether it existed. Throws conflict if it is the only version of the skill, and unsupported for a
   * skill of skills_dir.
   */
  deleteVersion(version: { readonly id: string; readonly version: number }): Promise<boolean>;
}

/** Returns the latest version of a skill. */
export function latestVersion({ versions }: Skill): SkillVersion {
  return versions[versions.length - 1] as SkillVersion;
}

/** Returns a version of a skill; `version` null = the latest one. undefined = the version does not exist. */
export function versionOf(skill: Skill, version: number | null): SkillVersion | undefined {
  return version === null ? latestVersion(skill) : skill.versions.find((one) => one.version === version);
}
