// Request fields of the agent loop, which the protocols share: features, limits, permission, session and requested files; and
// their translation to AgentOptions.
import { z } from "zod";
import { type AgentOptions, type InputFile, maxToolRounds, type ToolGroup } from "../../../actors/api/agent/agents.ts";
import { messageDigest } from "../../../actors/api/agent/message-digest.ts";
import { defaultWebOptions } from "../../../actors/api/agent/web.ts";
import { checkedFileName } from "../../../actors/files/file-name.ts";
import { toolsOf } from "../../../actors/tools/schemas.ts";
import type { ChatMessage, GenerateRequest, ToolSpec } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { expected } from "../../issues.ts";
import { permissionField } from "../fields/tools/permission.ts";

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
  description: z.string().max(MAX_TEXT_LENGTH).nullish().meta({ description: "What the file is to contain." }),
});

/** Fields of all protocols. */
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
    .meta({ description: "Files that the model is to produce with server tools." }),
  enable_code_execution: z
    .boolean()
    .nullish()
    .meta({ description: "Offer Python code execution on the server; needs the setting enable_code_execution." }),
  enable_shell: z
    .boolean()
    .nullish()
    .meta({ description: "Offer shell commands on the server; needs the setting enable_shell." }),
} as const;

export type AgentFields = z.output<z.ZodObject<typeof agentFields>>;

/** Tools that the server offers. A parameter of the translation of bodies. */
export interface OfferedTools {
  readonly groups: readonly ToolGroup[];
  /** Whether the server runs the client's function tools (tool_dispatch_url). */
  readonly dispatches: boolean;
  /** Declarations of the server tools (ServerTool). */
  readonly serverTools: readonly ToolSpec[];
}

/** Features that a request switches on (true) or off (false), by fields or by tools of these types; null: not named. */
export type NamedGroups = Readonly<Record<ToolGroup, boolean | null>>;

export function namedGroups(
  { enable_code_execution: code, enable_shell: shell }: AgentFields,
  hosted: readonly ToolGroup[],
): NamedGroups {
  return {
    code_execution: hosted.includes("code_execution") ? true : (code ?? null),
    shell: hosted.includes("shell") ? true : (shell ?? null),
    web_search: hosted.includes("web_search") ? true : null,
  };
}

/** Specs of the tools that a request names explicitly. */
export function namedSpecs(named: NamedGroups): readonly ToolSpec[] {
  return specsOf(groupNames.filter((group) => named[group] === true));
}

const groupNames = ["code_execution", "shell", "web_search"] as const satisfies readonly ToolGroup[];
const features = {
  code_execution: { what: "code execution", setting: "enable_code_execution" },
  shell: { what: "the shell tool", setting: "enable_shell" },
  web_search: { what: "web search", setting: "enable_search" },
} as const satisfies Record<ToolGroup, object>;

/** Facts of a request that decide whether it uses the agent loop. */
export interface AgentNeeds {
  readonly named: NamedGroups;
  readonly fields: AgentFields;
  readonly hasFiles: boolean;
  /** Whether the request has function tools. */
  readonly hasFunctions: boolean;
}

/**
 * Returns the features of a request that uses the agent loop: the features that it names, or else all that the server offers.
 * null: the request does not use the loop. Throws `unsupported` for a feature that the server does not offer.
 */
export function agentGroups(
  { named, fields, hasFiles, hasFunctions }: AgentNeeds,
  offered: OfferedTools | null,
): readonly ToolGroup[] | null {
  for (const group of groupNames) {
    if (named[group] === true && !(offered?.groups.includes(group) ?? false)) throw notEnabled(group, fields);
  }
  const { agent_permission, max_tool_rounds, session_id } = fields;
  if (offered === null) {
    if (hasFiles) throw noAgents("a file in a message", "messages");
    if (isGiven(session_id)) throw noAgents("session_id", "session_id");
    if ((fields.files?.length ?? 0) > 0) throw noWriter();
    return null;
  }
  const wanted = groupNames.filter((group) => named[group] === true);
  if (wanted.length > 0) return wanted;
  const wantsTools = isGiven(agent_permission) || isGiven(max_tool_rounds) || (fields.files?.length ?? 0) > 0;
  const available = offered.groups.filter((group) => named[group] !== false);
  if (isGiven(session_id) || hasFiles || (wantsTools && available.length > 0)) return available;
  if ((fields.files?.length ?? 0) > 0) throw noWriter();
  return offered.dispatches && hasFunctions ? [] : null;
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function notEnabled(group: ToolGroup, fields: AgentFields): ServerError {
  const { what, setting } = features[group];
  const message = `${what} is not enabled on this server; the setting ${setting} enables it`;
  const isField = setting in fields && (fields as Readonly<Record<string, unknown>>)[setting] === true;
  return new ServerError("unsupported", message, { param: isField ? setting : "tools" });
}

function noAgents(what: string, param: string): ServerError {
  return new ServerError("unsupported", `${what} cannot be used: this server keeps no files and sessions`, { param });
}

function noWriter(): ServerError {
  const message = "files needs a server tool that writes them: code execution or the shell, which are not enabled";
  return new ServerError("invalid_value", message, { param: "files" });
}

export function specsOf(groups: readonly ToolGroup[]): readonly ToolSpec[] {
  return toolsOf(groups).map(({ spec }) => spec);
}

export interface AskedAgent {
  readonly groups: readonly ToolGroup[];
  readonly inputFiles: readonly InputFile[];
  /** Digest of each message of the conversation; see digestsOf. */
  readonly digests: readonly string[];
  readonly isStreamed: boolean;
  /** Maximum number of calls of server tools; absent: no limit. */
  readonly maxCalls?: number | null | undefined;
  /** Whether the conversation ends with an answer to continue; absent: false. */
  readonly continuesAnswer?: boolean;
}

export function digestsOf(messages: readonly ChatMessage[]): readonly string[] {
  return messages.map(messageDigest);
}

/** Builds the options of the agent loop. Throws invalid_value if files are requested and no tool can make them. */
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
    serverTools: [],
    web: defaultWebOptions,
    skills: [],
    isPlain: false,
    permission: fields.agent_permission ?? null,
    maxRounds: fields.max_tool_rounds ?? null,
    maxCalls: asked.maxCalls ?? null,
    continuesAnswer: asked.continuesAnswer ?? false,
    sessionId: fields.session_id ?? null,
    digests,
    requestedFiles,
    inputFiles,
    isStreamed,
  };
}

/**
 * Returns the request and the options of a run. Each round of a run is a new message, so a request that continues the last
 * message becomes one with `continuesAnswer`. Throws invalid_value for more than one choice.
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

function isFileName(name: string): boolean {
  try {
    checkedFileName(name, true);
    return true;
  } catch {
    return false;
  }
}
