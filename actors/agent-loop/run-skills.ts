// Skills of a run: finds the skills that a request names, copies them to its session, and tells the model where they are. The
// prompt contains only the name and the description of a skill; the model reads the rest with the shell.
import type { PromptChanges } from "../../engines/generation.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import type { AgentOptions, SkillReference } from "../api/agent/agents.ts";
import { type SkillContent, type Skills, skillLimits } from "../api/agent/skills.ts";
import type { Tools } from "../api/agent/tools.ts";

type Agent = Pick<AgentOptions, "skills" | "groups">;

/** Finds the skills of a request. Throws skill_not_found, invalid_value, or unsupported without the shell tool. */
export async function skillsOfRun(
  { skills: references, groups }: Agent,
  skills: Skills,
): Promise<readonly SkillContent[]> {
  if (references.length === 0) return [];
  if (!groups.includes("shell")) {
    throw new ServerError(
      "unsupported",
      "skills need the shell tool, because the model reads them with it: offer it in the request, and enable it on the server (--enable-shell or --agent)",
      { param: "skills" },
    );
  }
  const { maxRunSkills } = skillLimits;
  if (references.length > maxRunSkills)
    throw invalid(`expected at most ${maxRunSkills} skills, got ${references.length}`);
  const found = await Promise.all(references.map((reference) => contentOf(reference, skills)));
  checkTogether(found);
  return found;
}

/** Copies the skills to the session's tools, replacing the skills of the session's last request. Returns the note for the prompt. */
export async function mountSkills(
  found: readonly SkillContent[],
  session: string,
  tools: Tools,
): Promise<PromptChanges["notes"]> {
  const mounts = found.map(({ name, folder, state }) => ({ name, folder, state }));
  const { folder } = await tools.mountSkills({ session, skills: mounts });
  const lines = found.map(({ name, description }) => `- ${name}: ${oneLine(description)} (${folder}/${name}/SKILL.md)`);
  const head = "[Skills: read the SKILL.md of a skill with the shell before you use the skill]";
  return [{ at: null, text: `${head}\n${lines.join("\n")}` }];
}

/** Removes the skills of the session's last request. */
export async function unmountSkills(session: string, tools: Tools): Promise<void> {
  try {
    await tools.mountSkills({ session, skills: [] });
  } catch (error) {
    // If the tools process has ended, its sessions and their skills are gone too.
    if (toErrorRecord(error).code !== "peer_gone") throw error;
  }
}

async function contentOf(reference: SkillReference, skills: Skills): Promise<SkillContent> {
  const found = await skills.content(reference);
  if (found !== null) return found;
  const version = reference.version === null ? "" : ` with the version ${reference.version}`;
  const id = JSON.stringify(reference.id.slice(0, 200));
  throw new ServerError("skill_not_found", `no skill has the id ${id}${version}; GET /v1/skills lists the skills`, {
    param: "skills",
  });
}

function checkTogether(found: readonly SkillContent[]): void {
  const names = found.map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) throw invalid(`expected skills with different names, got "${twice}" twice`);
  const bytes = found.reduce((sum, skill) => sum + skill.bytes, 0);
  const { maxRunBytes } = skillLimits;
  if (bytes > maxRunBytes) throw invalid(`expected skills of at most ${maxRunBytes} bytes together, got ${bytes}`);
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, " ");
}

function invalid(message: string): ServerError {
  return new ServerError("invalid_value", message, { param: "skills" });
}
