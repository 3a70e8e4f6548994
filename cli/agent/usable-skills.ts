// Usable skills: chooses the skills from `skills_dir` that a run in the terminal may use, within the limits on skills per run.
import { latestVersion, type Skill, skillLimits } from "../../actors/api/agent/skills.ts";

export interface UsableSkills {
  readonly used: readonly Skill[];
  /** Names of the skills that exceed the limits, or that have the same name as an earlier skill. */
  readonly leftOut: readonly string[];
}

export function usableSkills(skills: readonly Skill[]): UsableSkills {
  const used = new Map<string, Skill>();
  const leftOut: string[] = [];
  let bytes = 0;
  for (const skill of skills) {
    const { name, bytes: size } = latestVersion(skill);
    const fits = used.size < skillLimits.maxRunSkills && bytes + size <= skillLimits.maxRunBytes;
    if (!fits || used.has(name)) {
      leftOut.push(name);
      continue;
    }
    used.set(name, skill);
    bytes += size;
  }
  return { used: [...used.values()], leftOut };
}
