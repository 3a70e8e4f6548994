// Skill upload: reads the form of a new skill or of a new version of a skill, and stores it.
import { type Skill, type Skills, skillLimits } from "../../actors/api/agent/skills.ts";
import { ServerError } from "../../runtime/errors.ts";
import { clientOf } from "../server/client.ts";
import type { HttpRequest } from "../server/edge.ts";
import { type FormRules, readForm, removeStaged, type UploadedForm } from "../shared/forms/read-form.ts";

const formRules: FormRules = {
  fileFields: ["files", "files[]", "file", "file[]"],
  maxFiles: skillLimits.maxFiles,
  maxFileBytes: skillLimits.maxUploadBytes,
  allowsFolders: true,
};
const MAX_TITLE_LENGTH = 255;
/** Form fields for the title of a new skill. The second name is an alias of the first. */
const titleFields = ["display_title", "display_name"] as const;
/** Form fields that are allowed for a new version of a skill. */
const versionFields = ["default"] as const;

/** Stores an uploaded skill or version. `skill`: id of the skill that gets a new version; null: a new skill is created. */
export async function storeUpload(request: HttpRequest, skills: Skills, skill: string | null): Promise<Skill> {
  const form = await readForm(request, skills.stagingFolder, formRules);
  try {
    const displayTitle = fieldsOf(form, skill !== null);
    return await skills.add({ skill, displayTitle, files: form.files, client: clientOf(request) });
  } finally {
    await removeStaged(form.files, skills.stagingFolder);
  }
}

/** Checks the form fields. Returns the title; null if there is none. */
function fieldsOf({ fields }: UploadedForm, isVersion: boolean): string | null {
  const allowed: readonly string[] = isVersion ? versionFields : titleFields;
  for (const name of fields.keys()) {
    if (!allowed.includes(name))
      throw invalid(name.slice(0, 100), `expected no field besides files and ${allowed.join(", ")}`);
  }
  const isDefault = fields.get("default");
  if (isDefault !== undefined && isDefault !== "true") {
    throw invalid(
      "default",
      'expected "true", because the newest version is always the default version; upload it last',
    );
  }
  const title = titleFields.map((name) => fields.get(name)).find((text) => text !== undefined && text !== "") ?? null;
  if (title === null || (title.length <= MAX_TITLE_LENGTH && !/[\p{Cc}\p{Zl}\p{Zp}]/u.test(title))) return title;
  throw invalid("display_title", `expected one line of at most ${MAX_TITLE_LENGTH} characters`);
}

function invalid(param: string, message: string): ServerError {
  return new ServerError("invalid_value", message, { param });
}
