// Built-in tools: their names, the descriptions and argument schemas for the model, and their names in progress events and
// approvals. The main thread and the text workers load this module, so it must not import code that runs tools.
import { z } from "zod";
import type { ToolSpec } from "../../engines/generation.ts";
import type { ApprovalRequest, ToolGroup, ToolType } from "../api/agent/agents.ts";
import type { SandboxedTool } from "../api/agent/tools.ts";

/** Prefix of the names of built-in tools. */
export const builtInPrefix = "service_";

const MAX_NAME_LENGTH = 1024;
const MAX_CODE_LENGTH = 1_000_000;
/** Maximum number of bytes of a command: less than the kernel's limit for one argument, 128 KiB. */
const MAX_COMMAND_BYTES = 130_000;
const MAX_COMMANDS = 64;
const MAX_OUTPUTS = 64;
const MAX_QUERY_LENGTH = 2048;
const MAX_URL_LENGTH = 8192;
/** Maximum number of characters that one call of read_file returns. */
export const maxReadCharacters = 65_536;

const fileName = z.string().min(1).max(MAX_NAME_LENGTH);
const output = z.strictObject({
  name: fileName.describe("Path in the working directory"),
  format: z.string().max(64).optional(),
});
const outputs = z.array(output).max(MAX_OUTPUTS);

const command = z
  .string()
  .min(1)
  .max(MAX_COMMAND_BYTES)
  .refine((text) => !text.includes("\0"), "expected no NUL character")
  .refine(
    (text) => new TextEncoder().encode(text).length <= MAX_COMMAND_BYTES,
    `expected at most ${MAX_COMMAND_BYTES} bytes; write long texts to files with several commands`,
  );

/** Argument schemas of the built-in tools. */
export const toolArguments = {
  execute_python: z.strictObject({
    code: z.string().max(MAX_CODE_LENGTH).describe("Python source code"),
    outputs: outputs.optional().describe("Files that the code writes and the user should get"),
  }),
  reset_python_session: z.strictObject({}),
  shell: z.strictObject({
    commands: z.array(command).min(1).max(MAX_COMMANDS).describe("Commands to run in order"),
    outputs: outputs.optional().describe("Files that the commands write and the user should get"),
    timeout_ms: z.int().min(1).optional().describe("Time limit of each command in milliseconds"),
    max_output_length: z.int().min(1).optional().describe("Maximum number of bytes of all outputs of a kind"),
  }),
  surface_outputs: z.strictObject({
    outputs: outputs.min(1).describe("Files in the working directory that the user should get"),
  }),
  read_file: z.strictObject({
    file_id: z.string().max(256),
    start: z.int().min(0).optional().describe("First character, counted from 0"),
    end: z.int().min(0).optional().describe("Character after the last one"),
  }),
  list_files: z.strictObject({}),
  search_the_web: z.strictObject({
    query: z.string().min(1).max(MAX_QUERY_LENGTH).describe("What to search for"),
  }),
  website_content_extractor: z.strictObject({
    url: z.string().min(1).max(MAX_URL_LENGTH).describe("URL of the page, with http or https"),
  }),
} as const;

export type BuiltInName = keyof typeof toolArguments;

export interface BuiltInTool {
  readonly name: BuiltInName;
  /** Tool declaration for the model. */
  readonly spec: ToolSpec;
  /** Groups that contain the tool. */
  readonly groups: readonly ToolGroup[];
  readonly type: ToolType;
  readonly kind: ApprovalRequest["tool"]["kind"];
  readonly label: string;
  /**
   * Where the tool runs. Name of a sandboxed tool = in the sandbox; `files` = in the agent loop, on the file store; `web` = on
   * the web thread.
   */
  readonly runsIn: SandboxedTool | "files" | "web";
}

function tool(name: BuiltInName, description: string, rest: Omit<BuiltInTool, "name" | "spec">): BuiltInTool {
  const { $schema: _, ...parameters } = z.toJSONSchema(toolArguments[name]);
  const spec = { name: builtInPrefix + name, description, parameters, strict: true };
  return { name, spec, ...rest };
}

const code = { type: "code_execution", kind: "code_execution" } as const;
const both = ["code_execution", "shell"] as const;
const web = { type: "web_search", kind: "web_search", groups: ["web_search"], runsIn: "web" } as const;

export const builtInTools: readonly BuiltInTool[] = [
  tool(
    "execute_python",
    "Run Python code. Variables, imports and files stay for later calls. Returns stdout, stderr, the value of the last expression and created files.",
    { ...code, groups: ["code_execution"], label: "Python code", runsIn: "execute_python" },
  ),
  tool("reset_python_session", "Restart the Python interpreter and forget its variables. Files stay.", {
    ...code,
    groups: ["code_execution"],
    label: "Python code",
    runsIn: "reset_python_session",
  }),
  tool("shell", "Run shell commands one after another. Returns their stdout, stderr, exit codes and created files.", {
    type: "shell",
    kind: "shell",
    groups: ["shell"],
    label: "Shell command",
    runsIn: "shell",
  }),
  tool("surface_outputs", "Give the user files that earlier calls wrote to the working directory.", {
    type: "shell",
    kind: "file",
    groups: ["shell"],
    label: "File outputs",
    runsIn: "surface_outputs",
  }),
  tool("read_file", `Read the text of a file by its id, at most ${maxReadCharacters} characters at a time.`, {
    type: "custom",
    kind: "file",
    groups: both,
    label: "File access",
    runsIn: "files",
  }),
  tool("list_files", "List the files of the session: ids, names, sizes and formats.", {
    type: "custom",
    kind: "file",
    groups: both,
    label: "File access",
    runsIn: "files",
  }),
  tool(
    "search_the_web",
    "Search the web. Returns titles, URLs and the passages of the pages that match the query best.",
    {
      ...web,
      label: "Web search",
    },
  ),
  tool("website_content_extractor", "Read the main text of a web page as markdown.", { ...web, label: "Web page" }),
];

/** Returns the tools that belong to at least one of the groups. */
export function toolsOf(groups: readonly ToolGroup[]): readonly BuiltInTool[] {
  return builtInTools.filter((built) => built.groups.some((group) => groups.includes(group)));
}

/** Returns the built-in tool of these groups with this name (as the model sees it); undefined = no such tool. */
export function builtInNamed(name: string, groups: readonly ToolGroup[]): BuiltInTool | undefined {
  return toolsOf(groups).find(({ spec }) => spec.name === name);
}

/** Names of all built-in tools, as the model sees them. */
export const builtInNames: readonly string[] = builtInTools.map(({ spec }) => spec.name);
