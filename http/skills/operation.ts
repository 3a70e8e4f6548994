// OpenAPI description of the skills routes.
import { z } from "zod";
import type { ErrorCode } from "../../runtime/errors.ts";
import { jsonAnswer, type Operation } from "../operation.ts";
import { skillForm, skillsQuery, versionForm } from "./query.ts";
import { anyDeletedSkill, anyDeletedVersion, anySkill, anySkillList, anyVersion, anyVersionList } from "./schemas.ts";

const skill_id = z.string().meta({ description: "Skill id." });
const version = z.string().meta({ description: "Number or id of a version, or `latest`." });
const skillPath = z.strictObject({ skill_id });
const versionPath = z.strictObject({ skill_id, version });

const SHAPES =
  "With a version or beta header of the messages protocol, or the parameter source, the answer has that protocol's shape.";

const stateErrors: readonly ErrorCode[] = ["unsupported", "storage_unavailable", "peer_gone"];
const skillErrors: readonly ErrorCode[] = ["skill_not_found", ...stateErrors];
const uploadErrors: readonly ErrorCode[] = ["conflict", "queue_full", "timeout", ...stateErrors];

const archive: Operation["answers"] = {
  200: [{ contentType: "application/zip", description: "The files below a folder with the name of the skill" }],
};

export const createSkillOperation: Operation = {
  id: "createSkill",
  tag: "Agents",
  summary: "Upload a skill",
  description: `SKILL.md begins with YAML front matter with the keys name and description. ${SHAPES}`,
  body: skillForm,
  takesForm: true,
  answers: jsonAnswer(anySkill, "The stored skill"),
  errors: uploadErrors,
};

export const listSkillsOperation: Operation = {
  id: "listSkills",
  tag: "Agents",
  summary: "List the skills",
  description: `Uploaded skills, and those of skills_dir. ${SHAPES}`,
  query: skillsQuery,
  answers: jsonAnswer(anySkillList, "A page of skills"),
  errors: stateErrors,
};

export const retrieveSkillOperation: Operation = {
  id: "retrieveSkill",
  tag: "Agents",
  summary: "Get a skill",
  path: skillPath,
  answers: jsonAnswer(anySkill, "The skill"),
  errors: skillErrors,
};

export const deleteSkillOperation: Operation = {
  id: "deleteSkill",
  tag: "Agents",
  summary: "Delete a skill",
  description: "Deletes all versions. Requests that run with the skill keep it until they end.",
  path: skillPath,
  answers: jsonAnswer(anyDeletedSkill, "The skill is deleted"),
  errors: skillErrors,
};

export const skillContentOperation: Operation = {
  id: "downloadSkill",
  tag: "Agents",
  summary: "Get the latest version of a skill as a zip archive",
  path: skillPath,
  answers: archive,
  errors: [...skillErrors, "timeout"],
};

export const createSkillVersionOperation: Operation = {
  id: "createSkillVersion",
  tag: "Agents",
  summary: "Upload a new version of a skill",
  path: skillPath,
  body: versionForm,
  takesForm: true,
  answers: jsonAnswer(anyVersion, "The stored version"),
  errors: ["skill_not_found", ...uploadErrors],
};

export const listSkillVersionsOperation: Operation = {
  id: "listSkillVersions",
  tag: "Agents",
  summary: "List the versions of a skill",
  path: skillPath,
  query: skillsQuery,
  answers: jsonAnswer(anyVersionList, "A page of versions"),
  errors: skillErrors,
};

export const retrieveSkillVersionOperation: Operation = {
  id: "retrieveSkillVersion",
  tag: "Agents",
  summary: "Get a version of a skill",
  path: versionPath,
  answers: jsonAnswer(anyVersion, "The version"),
  errors: skillErrors,
};

export const deleteSkillVersionOperation: Operation = {
  id: "deleteSkillVersion",
  tag: "Agents",
  summary: "Delete a version of a skill",
  description: "The only version of a skill is deleted with the skill. Numbers of deleted versions are not used again.",
  path: versionPath,
  answers: jsonAnswer(anyDeletedVersion, "The version is deleted"),
  errors: ["conflict", ...skillErrors],
};

export const skillVersionContentOperation: Operation = {
  id: "downloadSkillVersion",
  tag: "Agents",
  summary: "Get a version of a skill as a zip archive",
  path: versionPath,
  answers: archive,
  errors: [...skillErrors, "timeout"],
};
