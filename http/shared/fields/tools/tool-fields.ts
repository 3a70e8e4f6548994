// Tool schemas that the protocols share: names and limits, the declaration of a function, and the tool choice. Also lists the
// hosted tool types that this server runs, and those that it rejects with an error that names them.
import { z } from "zod";
import type { SkillReference, ToolGroup } from "../../../../actors/api/agent/agents.ts";
import type { ToolSpec } from "../../../../engines/generation.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { expected } from "../../../issues.ts";
import { isBounded, tooLarge } from "../bounded.ts";
import { ignored, notBuiltYet, notYet, type RefusedVariants, refusedVariants } from "../fields.ts";

export const MAX_TOOLS = 256;
const MAX_DESCRIPTION_LENGTH = 65_536;

export function toolName(maxLength: number) {
  return z.string().regex(new RegExp(`^[a-zA-Z0-9_-]{1,${maxLength}}$`), {
    error: expected(`a name of 1 to ${maxLength} letters, digits, underscores and hyphens`),
  });
}

export const toolDescription = z.string().max(MAX_DESCRIPTION_LENGTH);

/** Fields of a function declaration in OpenAI's protocols, except the name. */
export const declaration = {
  description: toolDescription.nullish(),
  parameters: z
    .record(z.string(), z.unknown())
    .refine(isBounded, { error: tooLarge("a schema") })
    .nullish()
    .meta({ description: "JSON schema of the arguments, which are an object; any object by default." }),
  strict: z
    .boolean()
    .nullish()
    .meta({ description: "Enforce the schema on the arguments of every call.", default: false }),
} as const;

type Declaration = z.output<z.ZodObject<typeof declaration>>;

export function toolSpec(name: string, { description, parameters, strict }: Declaration): ToolSpec {
  return { name, description: description ?? null, parameters: parameters ?? null, strict: strict ?? false };
}

const MAX_CONTAINER_FILES = 64;
const MAX_ID_LENGTH = 256;
export const MAX_SKILLS = 32;
const SKILLS_ARE_STORED = "a skill inside a request is not supported; upload it at POST /v1/skills and send its id";

export const skillId = z.string().min(1).max(MAX_ID_LENGTH);
export const skillVersion = z
  .union([z.literal("latest"), z.int().min(1), z.string().regex(/^[1-9]\d{0,8}$/)], {
    error: expected('the number of a version, or "latest"'),
  })
  .nullish()
  .meta({ default: "latest" });

/** Returns the number of a skill version; null: the latest version. */
export function versionOf(version: z.output<typeof skillVersion>): number | null {
  return version === "latest" || version === null || version === undefined ? null : Number(version);
}

const skillReference = z.strictObject({
  type: z.literal("skill_reference", { error: `expected "skill_reference": ${SKILLS_ARE_STORED}` }),
  skill_id: skillId.meta({ description: "Id of a stored skill." }),
  version: skillVersion,
});

const fileIds = z.array(z.string().min(1).max(MAX_ID_LENGTH)).max(MAX_CONTAINER_FILES);

/** Schema of the tool that runs Python code on the server. */
export const codeInterpreterTool = z.strictObject({
  type: z.literal("code_interpreter"),
  container: z
    .union(
      [
        z.strictObject({
          type: z.literal("auto"),
          file_ids: fileIds.nullish().meta({ description: "Stored files to copy into the working directory." }),
          memory_limit: ignored(z.string(), "the setting max_memory_mb limits the memory"),
          network_policy: notBuiltYet("a network policy of a request"),
        }),
        z.string().max(MAX_ID_LENGTH).meta({ description: "Id of an earlier response's container." }),
      ],
      { error: expected('{"type": "auto"} or the id of a container') },
    )
    .nullish(),
});

/** Schema of the tool that runs shell commands on the server. */
export const shellTool = z.strictObject({
  type: z.literal("shell"),
  environment: z
    .strictObject({
      type: z.enum(["container_auto", "auto"]),
      file_ids: fileIds.nullish().meta({ description: "Stored files to copy into the working directory." }),
      memory_limit: ignored(z.string(), "the setting max_memory_mb limits the memory"),
      skills: z.array(skillReference).max(MAX_SKILLS).nullish().meta({ description: "Skills that the model can use." }),
      network_policy: notBuiltYet("a network policy of a request"),
    })
    .nullish(),
});

export type ServerTool = z.output<typeof codeInterpreterTool> | z.output<typeof shellTool>;

/** Maps the tool types that the server runs to features. */
export const serverToolGroups = { code_interpreter: "code_execution", shell: "shell" } as const satisfies Record<
  ServerTool["type"],
  ToolGroup
>;

/** Maps the tool types that the server runs to the function names that the model sees. */
export const serverToolNames = {
  code_interpreter: "service_execute_python",
  shell: "service_shell",
} as const satisfies Record<ServerTool["type"], string>;

/** Schema of a tool choice that names a tool of the server. */
export const serverChoice = z.strictObject({ type: z.enum(["code_interpreter", "shell"]) });

/** Returns the ids of the files that a server tool in a request lists. */
export function filesOfTool(tool: ServerTool): readonly string[] {
  const environment = tool.type === "shell" ? tool.environment : tool.container;
  return typeof environment === "object" ? (environment?.file_ids ?? []) : [];
}

/** Returns the skills that a server tool in a request lists. */
export function skillsOfTool(tool: ServerTool): readonly SkillReference[] {
  const skills = tool.type === "shell" ? (tool.environment?.skills ?? []) : [];
  return skills.map(({ skill_id: id, version }) => ({ id, version: versionOf(version) }));
}

/** Returns the session of a container. Throws not_found if the text is not a container id. */
export function sessionOfContainer(id: string): string {
  const session = id.startsWith(containerPrefix) ? id.slice(containerPrefix.length) : "";
  if (/^[A-Za-z0-9_-]{1,128}$/.test(session)) return session;
  throw new ServerError("not_found", `no container has the id ${JSON.stringify(id.slice(0, 200))}`, {
    param: "container",
  });
}

/** Prefix of container ids. The session id follows it. */
export const containerPrefix = "cntr_";

/** Type names of OpenAI's web search tool. */
export const webSearchTypes = [
  "web_search",
  "web_search_2025_08_26",
  "web_search_preview",
  "web_search_preview_2025_03_11",
] as const;

/** OpenAI's hosted tool types that this server does not run. */
export const hostedTypes = [
  "file_search",
  "local_shell",
  "apply_patch",
  "custom",
  "tool_search",
  "image_generation",
  "computer",
  "computer_use",
  "computer_use_preview",
  "programmatic_tool_calling",
] as const;

export function refusedTools<const Types extends readonly [string, ...string[]]>(types: Types): RefusedVariants<Types> {
  return refusedVariants(
    types,
    (type) => `${notYet(`a tool of type "${type}"`)}; declare tools that the client runs as type "function"`,
  );
}

export function refusedChoices<const Types extends readonly [string, ...string[]]>(
  types: Types,
): RefusedVariants<Types> {
  return refusedVariants(types, (type) => notYet(`a choice of type "${type}"`));
}

/**
 * Creates the schema of a tool choice that names a function, nested (chat completions) or flat (responses). `example`: form
 * shown in the error message.
 */
export function namedFunction(name: z.ZodString, example: string) {
  return z
    .strictObject({
      type: z.literal("function"),
      name: name.optional(),
      function: z.strictObject({ name }).optional(),
    })
    .refine((choice) => (choice.name === undefined) !== (choice.function === undefined), {
      error: `expected one name, as ${example}`,
    });
}

interface Named {
  readonly name?: string | undefined;
  readonly function?: { readonly name: string } | undefined;
}

/** Returns the chosen function name. The schemas guarantee that one of the two names is set. */
export function nameOf(named: Named): string {
  return named.function?.name ?? named.name ?? "";
}

const modes = z.enum(["none", "auto", "required"]);

/**
 * Creates the fields of the tool choice. `choice`: schema of the object form. It is the first member of the union, so that
 * errors about an invalid object come from this schema.
 */
export function choiceFields<Choice extends z.ZodType>(choice: Choice) {
  return {
    tool_choice: z
      .union([choice, modes], { error: expected('"none", "auto", "required" or a choice of tools') })
      .nullish()
      .meta({
        description:
          "Which tools may or must be called; a grammar enforces a required call, and exactly one call of a named function.",
        default: "auto",
      }),
    parallel_tool_calls: z
      .boolean()
      .nullish()
      .meta({ description: "Allow several calls in one response.", default: true }),
  };
}
