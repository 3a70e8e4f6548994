// Schemas of skills and their versions in OpenAI's protocol and in the messages protocol.
import { z } from "zod";

const integer = z.int().min(0);
const version = z.int().min(1);
const createdAt = integer.meta({ description: "Unix time in seconds." });

export const skillSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("skill"),
    created_at: createdAt,
    name: z.string().meta({ description: "Name in the SKILL.md of the latest version." }),
    description: z.string(),
    latest_version: version,
    default_version: version.meta({ description: "The latest version." }),
  })
  .meta({ id: "Skill" });

export const skillVersionSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("skill.version"),
    skill_id: z.string(),
    created_at: createdAt,
    version,
    name: z.string(),
    description: z.string(),
  })
  .meta({ id: "SkillVersion" });

const time = z.string().meta({ description: "RFC 3339 time." });

export const messagesSkillSchema = z
  .strictObject({
    id: z.string(),
    type: z.literal("skill"),
    created_at: time,
    updated_at: time,
    display_title: z.string().nullable(),
    display_name: z.string().meta({ description: "display_title, or the name of the skill." }),
    latest_version: z.string(),
    latest_version_id: z.string(),
    source: z.literal("custom"),
  })
  .meta({ id: "MessagesSkill" });

export const messagesVersionSchema = z
  .strictObject({
    id: z.string(),
    type: z.literal("skill_version"),
    skill_id: z.string(),
    version: z.string(),
    name: z.string(),
    description: z.string(),
    directory: z.string(),
    created_at: time,
  })
  .meta({ id: "MessagesSkillVersion" });

/** Responses in either of the two protocols. */
export const anySkill = z.union([skillSchema, messagesSkillSchema]);
export const anyVersion = z.union([skillVersionSchema, messagesVersionSchema]);
export const anySkillList = z.union([listOf(skillSchema), messagesListOf(messagesSkillSchema)]);
export const anyVersionList = z.union([listOf(skillVersionSchema), messagesListOf(messagesVersionSchema)]);

export const anyDeletedSkill = z.union([
  z.strictObject({
    id: z.string(),
    object: z.literal("skill.deleted"),
    deleted: z.literal(true),
  }),
  z.strictObject({ id: z.string(), type: z.literal("skill_deleted") }),
]);

export const anyDeletedVersion = z.union([
  z.strictObject({
    id: z.string(),
    object: z.literal("skill.version.deleted"),
    deleted: z.literal(true),
    version,
  }),
  z.strictObject({ id: z.string(), type: z.literal("skill_version_deleted") }),
]);

function listOf<Item extends z.ZodType>(item: Item) {
  return z.strictObject({
    object: z.literal("list"),
    data: z.array(item),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  });
}

function messagesListOf<Item extends z.ZodType>(item: Item) {
  return z.strictObject({ data: z.array(item), has_more: z.boolean(), next_page: z.string().nullable() });
}
