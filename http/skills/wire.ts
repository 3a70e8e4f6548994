// JSON objects of skills and their versions, in OpenAI's protocol and in the messages protocol.
import type { z } from "zod";
import { latestVersion, type Skill, type SkillVersion } from "../../actors/api/agent/skills.ts";
import type { HttpRequest } from "../server/edge.ts";
import { hasVersionHeader } from "../shared/version-header.ts";
import type { messagesSkillSchema, messagesVersionSchema, skillSchema, skillVersionSchema } from "./schemas.ts";

/** Functions that build the response bodies of one protocol. */
export interface SkillShapes {
  skill(skill: Skill): { readonly id: string };
  version(skill: Skill, version: SkillVersion): { readonly id: string };
  deletedSkill(id: string): object;
  deletedVersion(id: string, version: number): object;
  list(items: readonly { readonly id: string }[], hasMore: boolean): object;
}

/**
 * Returns the functions for the messages protocol if the request has a header or parameter of that protocol, otherwise those
 * for OpenAI's protocol.
 */
export function shapesFor({ headers, query }: HttpRequest): SkillShapes {
  const hasBeta = headers.has("anthropic-beta") || headers.has("alt-beta");
  const isMessages = hasVersionHeader({ headers }) || hasBeta || new URLSearchParams(query).has("source");
  return isMessages ? messagesShapes : openAiShapes;
}

export function versionId(skill: string, number: number): string {
  return `${skill}_v${number}`;
}

const openAiShapes: SkillShapes = {
  skill(skill): z.output<typeof skillSchema> {
    const { name, description, version: latest } = latestVersion(skill);
    const { id, createdMs } = skill;
    const created_at = seconds(createdMs);
    return { id, object: "skill", created_at, name, description, latest_version: latest, default_version: latest };
  },
  version({ id: skill_id }, { version: number, name, description, createdMs }): z.output<typeof skillVersionSchema> {
    const id = versionId(skill_id, number);
    return {
      id,
      object: "skill.version",
      skill_id,
      created_at: seconds(createdMs),
      version: number,
      name,
      description,
    };
  },
  deletedSkill: (id) => ({ id, object: "skill.deleted", deleted: true }),
  deletedVersion: (id, number) => ({
    id: versionId(id, number),
    object: "skill.version.deleted",
    deleted: true,
    version: number,
  }),
  list: (data, has_more) => ({
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more,
  }),
};

const messagesShapes: SkillShapes = {
  skill(skill): z.output<typeof messagesSkillSchema> {
    const latest = latestVersion(skill);
    return {
      id: skill.id,
      type: "skill",
      created_at: rfc3339(skill.createdMs),
      updated_at: rfc3339(latest.createdMs),
      display_title: skill.displayTitle,
      // Newer clients read the title and the latest version from these fields.
      display_name: skill.displayTitle ?? latest.name,
      latest_version: String(latest.version),
      latest_version_id: versionId(skill.id, latest.version),
      source: "custom",
    };
  },
  version({ id: skill_id }, { version: number, name, description, createdMs }): z.output<typeof messagesVersionSchema> {
    return {
      id: versionId(skill_id, number),
      type: "skill_version",
      skill_id,
      version: String(number),
      name,
      description,
      directory: name,
      created_at: rfc3339(createdMs),
    };
  },
  deletedSkill: (id) => ({ id, type: "skill_deleted" }),
  deletedVersion: (id, number) => ({ id: versionId(id, number), type: "skill_version_deleted" }),
  list: (data, has_more) => ({ data, has_more, next_page: has_more ? (data.at(-1)?.id ?? null) : null }),
};

function seconds(ms: number): number {
  return Math.floor(ms / 1000);
}

function rfc3339(ms: number): string {
  return new Date(ms).toISOString();
}
