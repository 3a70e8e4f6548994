// Blocks of tools that the server runs, in the shape of the messages protocol: `server_tool_use` with the result block of code
// execution, the shell or a web tool, and `mcp_tool_use` with `mcp_tool_result`.
import { z } from "zod";
import { type BuiltInKind, builtInKind, hasFailed, type ProgressEvent } from "../shared/agent/progress-event.ts";
import { webBlockSchemas, webResultBlock } from "./web-blocks.ts";

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

export const serverBlockSchemas = [
  z.strictObject({
    type: z.literal("server_tool_use"),
    id: z.string(),
    name: z.enum(["code_execution", "bash_code_execution", "web_search", "web_fetch"]),
    input: z.record(z.string(), z.unknown()),
    caller: z.strictObject({ type: z.literal("direct") }),
  }),
  result("code_execution"),
  result("bash_code_execution"),
  ...webBlockSchemas,
  z.strictObject({
    type: z.literal("mcp_tool_use"),
    id: z.string(),
    name: z.string(),
    server_name: z.string(),
    input: z.record(z.string(), z.unknown()),
  }),
  z.strictObject({
    type: z.literal("mcp_tool_result"),
    tool_use_id: z.string(),
    is_error: z.boolean(),
    content: z.array(z.strictObject({ type: z.literal("text"), text: z.string(), citations: z.null() })),
  }),
] as const;

type ServerBlock = z.output<(typeof serverBlockSchemas)[number]>;
type UseBlock = Extract<ServerBlock, { readonly type: "server_tool_use" | "mcp_tool_use" }>;
type ResultBlock = Exclude<ServerBlock, UseBlock>;

/** Tool names in blocks, by kind of tool. Calls of all other tools are reported only by extension events. */
const names = {
  code: "code_execution",
  shell: "bash_code_execution",
  search: "web_search",
  page: "web_fetch",
} as const satisfies Record<BuiltInKind, string>;

/** Returns the block of a tool call; null if the protocol has no block type for the tool. */
export function useBlock(event: ProgressEvent): UseBlock | null {
  const { call, server } = event;
  const input = inputOf(call.arguments);
  if (server !== null) {
    return { type: "mcp_tool_use", id: mcpBlockId(event), name: call.name, server_name: server, input };
  }
  const kind = builtInKind(event);
  if (kind === null) return null;
  return { type: "server_tool_use", id: serverBlockId(event), name: names[kind], input, caller: { type: "direct" } };
}

/**
 * Returns the block of a tool result; null if the protocol has no block type for the tool. `session`: session of the agent run.
 */
export function resultBlock(event: ProgressEvent, session: string): ResultBlock | null {
  if (event.server !== null) return mcpResult(event);
  const kind = builtInKind(event);
  if (kind === null) return null;
  if (kind === "search" || kind === "page") return webResultBlock(event, serverBlockId(event), session);
  const name = names[kind];
  const content = contentOf(name, event);
  return { type: `${name}_tool_result`, tool_use_id: serverBlockId(event), content } as ResultBlock;
}

function mcpResult(event: ProgressEvent): ResultBlock {
  return {
    type: "mcp_tool_result",
    tool_use_id: mcpBlockId(event),
    is_error: hasFailed(event),
    content: [{ type: "text", text: event.record?.result_content ?? "", citations: null }],
  };
}

function contentOf(kind: "code_execution" | "bash_code_execution", event: ProgressEvent): object {
  const { data, record } = event;
  if (data.status === "denied" || data.status === "cancelled") {
    return { type: `${kind}_tool_result_error`, error_code: "unavailable" };
  }
  if (data.status === "timeout" || data.timed_out === true) {
    return { type: `${kind}_tool_result_error`, error_code: "execution_time_exceeded" };
  }
  // A call that could not be run has only the field `content`, which contains the reason.
  const errors = [data.stderr, data.exception, data.content].map(textOf);
  return {
    type: `${kind}_result`,
    stdout: textOf(data.stdout),
    stderr: errors.filter((text) => text !== "").join("\n"),
    return_code: typeof data.exit_code === "number" ? data.exit_code : hasFailed(event) ? 1 : 0,
    content: (record?.file_ids ?? []).map((file_id) => ({ type: `${kind}_output`, file_id })),
  };
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/**
 * Returns the id of a server call in the messages protocol, whose clients expect the prefix `srvtoolu_`. The id
 * contains the tool round, because a later request must put the calls of one round into one message.
 */
function serverBlockId({ call, round }: ProgressEvent): string {
  return `srvtoolu_${round}_${safe(call.id)}`;
}

function mcpBlockId({ call, round }: ProgressEvent): string {
  return `mcptoolu_${round}_${safe(call.id)}`;
}

function safe(id: string): string {
  return id.replaceAll(/[^A-Za-z0-9_-]/g, "_");
}

/** Returns the round and the call id that a block id contains; null if this server did not create the block id. */
export function callOfBlock(id: string): { readonly round: number; readonly id: string } | null {
  const [, round, call] = /^(?:srvtoolu|mcptoolu)_(\d{1,3})_(.+)$/.exec(id) ?? [];
  return round === undefined || call === undefined ? null : { round: Number(round), id: call };
}

function inputOf(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // The arguments are not valid JSON. The result of the call reports this error.
  }
  return {};
}
