// Request fields of the agent loop in all protocols: features, limits, permission, session and requested files. Translates them
// to AgentOptions.
import { z } from "zod";
import {
  type AgentOptions,
  type EarlierCalls,
  type InputFile,
  maxToolRounds,
  noEarlierCalls,
  type SkillReference,
  type ToolGroup,
} from "../../../actors/api/agent/agents.ts";
import { messageDigest } from "../../../actors/api/agent/message-digest.ts";
import { checkedFileName } from "../../../actors/files/file-name.ts";
import { toolsOf } from "../../../actors/tools/schemas.ts";
import type { ChatMessage, GenerateRequest, ToolSpec } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { expected } from "../../issues.ts";
import { permissionField } from "../fields/tools/permission.ts";
import type { WebUse } from "../fields/tools/web-search.ts";

const MAX_REQUESTED_FILES = 64;
const MAX_TEXT_LENGTH = 4096;

export const sessionId = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,128}$/, { error: expected("an id of 1 to 128 letters, digits, underscores and hyphens") });

const requestedFile = z.strictObject({
  name: z
    .string()
    .refine(isFileName, { error: expected("a file name, with folders of the working directory if any") })
    .meta({ description: "Name of the file in the working directory of the tools." }),
  format: z.string().max(64).nullish().meta({ description: "Format; by default the extension of the name." }),
  description: z.string().max(MAX_TEXT_LENGTH).nullish().meta({ description: "Content of the file." }),
});

/** Request fields of the agent loop that all protocols have. */
export const agentFields = {
  agent_permission: permissionField,
  max_tool_rounds: z
    .int()
    .min(0)
    .max(maxToolRounds)
    .nullish()
    .meta({ description: "Maximum number of rounds of server tools. Default: the setting max_tool_rounds." }),
  session_id: sessionId.nullish().meta({
    description: "Session of an earlier response. Its tools' state, files and messages are kept for this request.",
  }),
  files: z
    .array(requestedFile)
    .max(MAX_REQUESTED_FILES)
    .nullish()
    .meta({ description: "Files that the model must produce with server tools." }),
  enable_code_execution: z
    .boolean()
    .nullish()
    .meta({ description: "Offer Python code execution on the server; needs the setting enable_code_execution." }),
  enable_shell: z
    .boolean()
    .nullish()
    .meta({ description: "Offer shell commands on the server; needs the setting enable_shell." }),
  enable_search: z
    .boolean()
    .nullish()
    .meta({ description: "Offer web search and reading web pages; needs the setting enable_search." }),
} as const;

export type AgentFields = z.output<z.ZodObject<typeof agentFields>>;

/** Features that a request switches on (true) or off (false) by a field or a tool type; null if the request does neither. */
export type NamedGroups = Readonly<Record<ToolGroup, boolean | null>>;

type Switches = Pick<AgentFields, "enable_code_execution" | "enable_shell" | "enable_search">;

export function namedGroups(
  { enable_code_execution: code, enable_shell: shell, enable_search: search }: Switches,
  hosted: readonly ToolGroup[],
): NamedGroups {
  return {
    code_execution: hosted.includes("code_execution") ? true : (code ?? null),
    shell: hosted.includes("shell") ? true : (shell ?? null),
    web_search: hosted.includes("web_search") ? true : (search ?? null),
  };
}

/** Returns the declarations of the tools in the features that a request switches on. */
export function namedSpecs(named: NamedGroups): readonly ToolSpec[] {
  return specsOf(groupNames.filter((group) => named[group] === true));
}

export const groupNames = ["code_execution", "shell", "web_search"] as const satisfies readonly ToolGroup[];
export function specsOf(groups: readonly ToolGroup[]): readonly ToolSpec[] {
  return toolsOf(groups).map(({ spec }) => spec);
}

export interface AskedAgent extends Pick<AgentOptions, "groups" | "serverTools" | "isPlain"> {
  readonly web: WebUse;
  readonly skills: readonly SkillReference[];
  readonly inputFiles: readonly InputFile[];
  /** Digest of each message in the conversation; see digestsOf. */
  readonly digests: readonly string[];
  readonly isStreamed: boolean;
  /** Maximum number of calls of server tools; absent: no limit. */
  readonly maxCalls?: number | null | undefined;
  /** Calls of server tools in earlier answers of the conversation; absent if there are none. */
  readonly earlierCalls?: EarlierCalls;
  /** Whether the output continues an answer at the end of the conversation; default: false. */
  readonly continuesAnswer?: boolean;
}

export function digestsOf(messages: readonly ChatMessage[]): readonly string[] {
  return messages.map(messageDigest);
}

/** Builds the options of the agent loop. Throws invalid_value if files are requested but no tool can produce them. */
export function agentOptions(fields: AgentFields, asked: AskedAgent): AgentOptions {
  const { groups, inputFiles, digests, isStreamed } = asked;
  const requestedFiles = (fields.files ?? []).map(({ name, format, description }) => ({
    name: checkedFileName(name, true),
    format: format ?? null,
    description: description ?? null,
  }));
  if (requestedFiles.length > 0 && groups.length === 0) throw noWriter();
  return {
    groups,
    serverTools: asked.serverTools,
    web: asked.web.options,
    maxUses: asked.web.maxUses,
    skills: asked.skills,
    isPlain: asked.isPlain,
    permission: fields.agent_permission ?? null,
    maxRounds: fields.max_tool_rounds ?? null,
    maxCalls: asked.maxCalls ?? null,
    continuesAnswer: asked.continuesAnswer ?? false,
    sessionId: fields.session_id ?? null,
    earlierCalls: earlierCallsOf(asked),
    digests,
    requestedFiles,
    inputFiles,
    isStreamed,
  };
}

/** Returns the earlier calls. Omits their session if the request asks for no feature of the agent loop. */
function earlierCallsOf({ earlierCalls = noEarlierCalls, isPlain }: AskedAgent): EarlierCalls {
  return isPlain ? { ...earlierCalls, session: null } : earlierCalls;
}

/**
 * Returns the request and the options of an agent run. Each round of a run is a new message, so the prompt's `continuesLast` is
 * replaced by `continuesAnswer` in the options. Throws invalid_value for more than one choice.
 */
export function runRequest<R extends Pick<GenerateRequest, "prompt" | "choices">>(
  asked: R,
  agent: AgentOptions,
): { readonly asked: R; readonly agent: AgentOptions } {
  const { prompt, choices } = asked;
  if (choices > 1) {
    throw new ServerError("invalid_value", `expected 1 choice with server tools, sessions or files; got ${choices}`, {
      param: "n",
    });
  }
  if (prompt.kind !== "chat" || prompt.continuesLast !== true) return { asked, agent };
  return {
    asked: { ...asked, prompt: { ...prompt, continuesLast: false } },
    agent: { ...agent, continuesAnswer: true },
  };
}

export function noWriter(): ServerError {
  const message = "files needs a server tool that writes them: code execution or the shell, which are not enabled";
  return new ServerError("invalid_value", message, { param: "files" });
}

function isFileName(name: string): boolean {
  try {
    checkedFileName(name, true);
    return true;
  } catch {
    return false;
  }
}
