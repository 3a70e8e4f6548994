// Blocks of tools that the server runs, in the shape of the messages protocol: `server_tool_use`, and the result block of code
// execution or of the shell.
import { z } from "zod";
import type { AgentEvent } from "../../actors/api/agent/agents.ts";

type ProgressEvent = Extract<AgentEvent, { readonly type: "tool_progress" }>;

function result<const Kind extends string>(kind: Kind) {
  const error = z.strictObject({
    type: z.literal(`${kind}_tool_result_error`),
    error_code: z.enum(["unavailable", "execution_time_exceeded"]),
  });
  const output = z.strictObject({ type: z.literal(`${kind}_output`), file_id: z.string() });
  const content = z.strictObject({
    type: z.literal(`${kind}_result`),
    stdout: z.string(),
    stderr: z.string(),
    return_code: z.int(),
    content: z.array(output),
  });
  return z.strictObject({
    type: z.literal(`${kind}_tool_result`),
    tool_use_id: z.string(),
    content: z.union([content, error]),
  });
}

/** Schemas of the blocks. */
export const serverBlockSchemas = [
  z.strictObject({
    type: z.literal("server_tool_use"),
    id: z.string(),
    name: z.enum(["code_execution", "bash_code_execution"]),
    input: z.record(z.string(), z.unknown()),
    caller: z.strictObject({ type: z.literal("direct") }),
  }),
  result("code_execution"),
  result("bash_code_execution"),
] as const;

type ServerBlock = z.output<(typeof serverBlockSchemas)[number]>;
type UseBlock = Extract<ServerBlock, { readonly type: "server_tool_use" }>;
type ResultBlock = Exclude<ServerBlock, UseBlock>;

/** Kinds of blocks, by the name of the tool. Other tools have no blocks; extension events report their calls. */
const kinds: Readonly<Record<string, "code_execution" | "bash_code_execution">> = {
  service_execute_python: "code_execution",
  service_shell: "bash_code_execution",
};

/** Returns the block of a call; null: the tool has no block in this protocol. */
export function useBlock({ call }: ProgressEvent): UseBlock | null {
  const name = kinds[call.name];
  if (name === undefined) return null;
  return {
    type: "server_tool_use",
    id: blockId(call.id),
    name,
    input: inputOf(call.arguments),
    caller: { type: "direct" },
  };
}

/** Returns the block of a call's result; null: the tool has no block in this protocol. */
export function resultBlock({ call, data, record }: ProgressEvent): ResultBlock | null {
  const kind = kinds[call.name];
  if (kind === undefined) return null;
  return {
    type: `${kind}_tool_result`,
    tool_use_id: blockId(call.id),
    content: contentOf(kind, data, record?.file_ids),
  } as ResultBlock;
}

function contentOf(
  kind: "code_execution" | "bash_code_execution",
  data: ProgressEvent["data"],
  fileIds: readonly string[] = [],
): object {
  if (data.status === "denied" || data.status === "cancelled") {
    return { type: `${kind}_tool_result_error`, error_code: "unavailable" };
  }
  if (data.status === "timeout" || data.timed_out === true) {
    return { type: `${kind}_tool_result_error`, error_code: "execution_time_exceeded" };
  }
  const exception = textOf(data.exception);
  const stderr = [textOf(data.stderr), exception].filter((text) => text !== "").join("\n");
  return {
    type: `${kind}_result`,
    stdout: textOf(data.stdout),
    stderr,
    return_code: typeof data.exit_code === "number" ? data.exit_code : exception === "" ? 0 : 1,
    content: fileIds.map((file_id) => ({ type: `${kind}_output`, file_id })),
  };
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Returns the id of a server call in the messages protocol. Its clients expect the prefix `srvtoolu_`. */
function blockId(callId: string): string {
  return `srvtoolu_${callId.replaceAll(/[^A-Za-z0-9_-]/g, "_")}`;
}

function inputOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // The model wrote no JSON object. The result of the call reports this error.
  }
  return {};
}
