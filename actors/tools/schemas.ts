// Built-in tools: their names, the descriptions and argument schemas that the model sees, and their names in progress events
// and approvals. The main thread and the text workers load this module, so it imports nothing that runs tools.
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
} as const;

export type BuiltInName = keyof typeof toolArguments;

export interface BuiltInTool {
  readonly name: BuiltInName;
  /** Declaration for the model. */
  readonly spec: ToolSpec;
  /** Groups that offer the tool to the model. */
  readonly groups: readonly ToolGroup[];
  readonly type: ToolType;
  readonly kind: ApprovalRequest["tool"]["kind"];
  readonly label: string;
  /** Name of the tool on the tools thread; null: the agent loop runs the tool on the file store. */
  readonly sandboxed: SandboxedTool | null;
}

function tool(
  name: BuiltInName,
  description: string,
  rest: Omit<BuiltInTool, "name" | "spec" | "sandboxed"> & { readonly sandboxed?: SandboxedTool },
): BuiltInTool {
  const { $schema: _, ...parameters } = z.toJSONSchema(toolArguments[name]);
  const spec = { name: builtInPrefix + name, description, parameters, strict: true };
  return { name, spec, sandboxed: null, ...rest };
}

const code = { type: "code_execution", kind: "code_execution" } as const;
const both = ["code_execution", "shell"] as const;

export const builtInTools: readonly BuiltInTool[] = [
  tool(
    "execute_python",
    "Run Python code. Variables, imports and files stay for later calls. Returns stdout, stderr, the value of the last expression and created files.",
    { ...code, groups: ["code_execution"], label: "Python code", sandboxed: "execute_python" },
  ),
  tool("reset_python_session", "Restart the Python interpreter and forget its variables. Files stay.", {
    ...code,
    groups: ["code_execution"],
    label: "Python code",
    sandboxed: "reset_python_session",
  }),
  tool("shell", "Run shell commands one after another. Returns their stdout, stderr, exit codes and created files.", {
    type: "shell",
    kind: "shell",
    groups: ["shell"],
    label: "Shell command",
    sandboxed: "shell",
  }),
  tool("surface_outputs", "Give the user files that earlier calls wrote to the working directory.", {
    type: "shell",
    kind: "file",
    groups: ["shell"],
    label: "File outputs",
    sandboxed: "surface_outputs",
  }),
  tool("read_file", `Read the text of a file by its id, at most ${maxReadCharacters} characters at a time.`, {
    type: "custom",
    kind: "file",
    groups: both,
    label: "File access",
  }),
  tool("list_files", "List the files of the session: ids, names, sizes and formats.", {
    type: "custom",
    kind: "file",
    groups: both,
    label: "File access",
  }),
];

/** Returns the tools that belong to at least one of the groups. */
export function toolsOf(groups: readonly ToolGroup[]): readonly BuiltInTool[] {
  return builtInTools.filter((built) => built.groups.some((group) => groups.includes(group)));
}

/** Returns the built-in tool of the groups with the name that the model sees; undefined: none. */
export function builtInNamed(name: string, groups: readonly ToolGroup[]): BuiltInTool | undefined {
  return toolsOf(groups).find(({ spec }) => spec.name === name);
}
