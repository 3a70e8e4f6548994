// Skill rig for tests of the skill store: the real store and its contents in a temporary folder.
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Skill } from "../../../../actors/api/agent/skills.ts";
import { SkillContents } from "../../../../actors/state/skill-contents.ts";
import { SkillFolders } from "../../../../actors/state/skill-folders.ts";
import { type KeptSkill, SkillStore } from "../../../../actors/state/skill-store.ts";
import { MemoryTables } from "../../../../runtime/store/memory-tables.ts";
import { TableStore } from "../../../../runtime/store/table-store.ts";

const limits = { maxEntries: 512, maxBytes: 2 ** 30, maxEntryBytes: 2 ** 20, maxAgeMs: 1e13 };

export class SkillRig {
  readonly root = mkdtempSync(join(tmpdir(), "troupe-skills-test-"));
  readonly contents = new SkillContents(join(this.root, "skills"));
  readonly warnings: (readonly [fields: object, message: string])[] = [];
  readonly store: SkillStore;
  now = Date.now();
  #count = 0;

  private constructor(hasFolder: boolean) {
    const folders = new SkillFolders(hasFolder ? join(this.root, "own") : null, (...warning) => {
      this.warnings.push(warning);
    });
    const store = new TableStore<KeptSkill>(new MemoryTables(), limits);
    this.store = new SkillStore({ store, contents: this.contents, folders, now: () => this.now });
  }

  /** Opens a rig. If `hasFolder` is true, the store also reads skills from a folder, into which `write` writes. */
  static async open(hasFolder = false): Promise<SkillRig> {
    const rig = new SkillRig(hasFolder);
    await rig.contents.open();
    mkdirSync(join(rig.root, "own"));
    return rig;
  }

  dispose(): void {
    rmSync(this.root, { recursive: true, force: true });
  }

  /** Writes a file into the skills folder. Returns its path. */
  write(name: string, content: string): string {
    const path = join(this.root, "own", name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
    return path;
  }

  /** Uploads a skill whose files are given as contents by name. */
  async upload(
    files: Readonly<Record<string, string | Uint8Array>>,
    skill: string | null = null,
    displayTitle: string | null = null,
  ): Promise<Skill> {
    const staged = Object.entries(files).map(([name, content]) => {
      const file = { name, staged: `part-${this.#count++}` };
      writeFileSync(join(this.contents.stagingFolder, file.staged), content);
      return file;
    });
    return await this.store.add({ skill, displayTitle, files: staged, client: "c" });
  }

  uploadZip(archive: Uint8Array, skill: string | null = null): Promise<Skill> {
    return this.upload({ "skill.zip": archive }, skill);
  }

  /** Returns the names of the stored contents and of the files in the staging folder. */
  onDisk(): { readonly content: readonly string[]; readonly staging: readonly string[] } {
    const names = (folder: string) => readdirSync(join(this.root, "skills", folder)).sort();
    return { content: names("content"), staging: names("staging") };
  }
}
