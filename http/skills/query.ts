// Query parameters and form fields of the skills routes.
import { z } from "zod";
import { skillLimits } from "../../actors/api/agent/skills.ts";
import { expected } from "../issues.ts";

const cursor = z.string().max(256).optional();

export const skillsQuery = z.object({
  limit: z
    .string()
    .regex(/^(?:[1-9]\d{0,2}|1000)$/, { error: expected("a number from 1 to 1000") })
    .optional()
    .meta({ description: "Maximum number of entries of a page.", default: "1000" }),
  order: z
    .enum(["asc", "desc"])
    .optional()
    .meta({ description: "Order by time of creation; desc: the newest first.", default: "desc" }),
  after: cursor.meta({ description: "Id of an entry; the page starts after it." }),
  page: cursor.meta({ description: "Messages protocol: `next_page` of the previous page." }),
  source: z
    .string()
    .max(64)
    .optional()
    .meta({ description: "Messages protocol: only skills of this source; all skills of this server are `custom`." }),
});

export type SkillsQuery = z.output<typeof skillsQuery>;

const files = z.array(z.string().meta({ format: "binary" })).meta({
  description: `A zip archive, or the files of a skill with their paths below one top-level folder: at most ${skillLimits.maxFiles} files, 50 MiB with the form, 100 MiB unpacked. SKILL.md is at the top. The field may also be called "file" or "files[]".`,
});

export const skillForm = z.strictObject({
  files,
  display_title: z
    .string()
    .max(255)
    .optional()
    .meta({ description: "Title to show instead of the name. Also called display_name." }),
});

export const versionForm = z.strictObject({
  files,
  default: z.literal("true").optional().meta({ description: "The newest version is always the default version." }),
});
