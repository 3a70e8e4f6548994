// Session skills: copies of the skills that a session may use, in a folder next to its work folder. Tools can only read the
// folder. It exists from the start of the session, so that the session's Python process sees skills that are added later. The
// copies belong to the session, so a skill that is deleted remains usable until the end of the run.
import { randomBytes } from "node:crypto";
import { rename } from "node:fs/promises";
import { join } from "node:path";
import { ServerError, toErrorRecord } from "../../../runtime/errors.ts";
import { removeFolder } from "../../../runtime/host/remove-folder.ts";
import type { IsolationReport } from "../../../runtime/sandbox/sandbox.ts";
import type { SkillToMount } from "../../api/agent/tools.ts";
import { copySkill } from "../../files/skills/skill-folder.ts";

/** Path of the folder inside the sandbox. */
export const innerSkillsFolder = "/skills";

export class SessionSkills {
  /** Path of the folder on the host. */
  readonly folder: string;
  /** State of each copied skill, by its name. The state changes when the skill's files change. */
  readonly #copied = new Map<string, string>();
  #turns: Promise<unknown> = Promise.resolve();

  constructor(folder: string) {
    this.folder = folder;
  }

  /** Where the sandbox mounts the folder. */
  get mount(): { readonly folder: string; readonly at: string } {
    return { folder: this.folder, at: innerSkillsFolder };
  }

  /** Returns the path of the folder as seen by tools. Without isolation, it is the path on the host. */
  pathFor({ kind }: IsolationReport): string {
    return kind === "none" ? this.folder : innerSkillsFolder;
  }

  /** Replaces the skills of the session: copies new and changed skills, and removes all others. */
  set(skills: readonly SkillToMount[]): Promise<void> {
    const done = this.#turns.then(() => this.#set(skills));
    this.#turns = done.catch(() => {});
    return done;
  }

  async #set(skills: readonly SkillToMount[]): Promise<void> {
    const wanted = new Map(skills.map(({ name, state }) => [name, state]));
    for (const [name, state] of this.#copied) if (wanted.get(name) !== state) await this.#remove(name);
    for (const skill of skills) if (!this.#copied.has(skill.name)) await this.#copy(skill);
  }

  async #remove(name: string): Promise<void> {
    await removeFolder(join(this.folder, name));
    this.#copied.delete(name);
  }

  async #copy({ name, folder, state }: SkillToMount): Promise<void> {
    const copy = join(this.folder, `.new-${randomBytes(8).toString("hex")}`);
    try {
      await copySkill(folder, copy);
      await rename(copy, join(this.folder, name));
    } catch (error) {
      await removeFolder(copy).catch(() => {});
      const { message } = toErrorRecord(error);
      throw new ServerError("storage_unavailable", `the skill ${name} could not be given to the tools: ${message}`);
    }
    this.#copied.set(name, state);
  }
}
