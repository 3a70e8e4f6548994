// Input items of tools that a server ran in an earlier response: code_interpreter_call, shell_call with shell_call_output,
// web_search_call, and mcp_call for all other tools. The field `agentic` contains the call and its result exactly as they were
// in the prompt. Items from other servers lack this field, so the result is built from their outputs.
import { z } from "zod";
import { builtInPrefix } from "../../../actors/tools/schemas.ts";
import { ignored } from "../../shared/fields/fields.ts";
import { serverToolNames } from "../../shared/fields/tools/tool-fields.ts";
import { webToolNames } from "../../shared/fields/tools/web-search.ts";

const MAX_ID_LENGTH = 256;
const MAX_NAME_LENGTH = 256;
const MAX_LIST = 1024;

const id = z.string().max(MAX_ID_LENGTH).nullish();
const status = z.enum(["in_progress", "completed", "incomplete", "interpreting", "calling", "failed"]).nullish();
const callId = z.string().min(1).max(MAX_ID_LENGTH);
const containerId = z.string().max(MAX_ID_LENGTH).nullish();

/** Field `agentic` of this server's items: the call as the model wrote it, and the result as the model read it. */
export const agenticSchema = z
  .strictObject({
    round: z.int().min(0).meta({ description: "Tool round of the response." }),
    call_id: z.string().max(MAX_ID_LENGTH),
    arguments: z.string().meta({ description: "Arguments as the model wrote them." }),
    result_content: z.string().nullable().meta({ description: "Result as the model read it; null: there is none." }),
    container_id: z.string().max(MAX_ID_LENGTH),
  })
  .meta({ id: "ResponseAgenticCall" });

const agentic = agenticSchema.nullish();

export const codeCallItem = z.strictObject({
  type: z.literal("code_interpreter_call"),
  id,
  status,
  code: z.string().nullish(),
  container_id: containerId,
  outputs: z
    .array(
      z.discriminatedUnion("type", [
        z.strictObject({ type: z.literal("logs"), logs: z.string() }),
        z.strictObject({ type: z.literal("image"), url: z.string() }),
      ]),
    )
    .max(MAX_LIST)
    .nullish(),
  agentic,
});

export const shellCallItem = z.strictObject({
  type: z.literal("shell_call"),
  id,
  status,
  call_id: callId,
  action: z.strictObject({
    commands: z.array(z.string()).max(MAX_LIST),
    timeout_ms: z.number().nullish(),
    max_output_length: z.number().nullish(),
  }),
  environment: ignored(z.unknown(), "the call has been run"),
  created_by: ignored(z.unknown(), "only the model calls tools"),
  agentic,
});

const outcome = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("exit"), exit_code: z.int() }),
  z.strictObject({ type: z.literal("timeout") }),
]);

export const shellOutputItem = z.strictObject({
  type: z.literal("shell_call_output"),
  id,
  status,
  call_id: callId,
  output: z
    .array(
      z.strictObject({
        stdout: z.string(),
        stderr: z.string(),
        outcome,
        created_by: ignored(z.unknown(), "only the model calls tools"),
      }),
    )
    .max(MAX_LIST),
  max_output_length: z.number().nullish(),
  created_by: ignored(z.unknown(), "only the model calls tools"),
  agentic,
});

export const mcpCallItem = z.strictObject({
  type: z.literal("mcp_call"),
  id,
  status,
  server_label: z.string().max(MAX_NAME_LENGTH),
  name: z.string().min(1).max(MAX_NAME_LENGTH),
  arguments: z.string(),
  output: z.string().nullish(),
  error: ignored(z.unknown(), "the output says what failed"),
  approval_request_id: ignored(z.unknown(), "the call has been approved"),
  agentic,
});

const webUrl = z.string().nullish();

export const webCallItem = z.strictObject({
  type: z.literal("web_search_call"),
  id,
  status: z.enum(["in_progress", "searching", "completed", "incomplete", "failed"]).nullish(),
  action: z
    .discriminatedUnion("type", [
      z.strictObject({
        type: z.literal("search"),
        query: z.string().nullish(),
        queries: z.array(z.string()).max(MAX_LIST).nullish(),
        sources: z
          .array(z.looseObject({ type: z.string(), url: webUrl }))
          .max(MAX_LIST)
          .nullish(),
      }),
      z.strictObject({ type: z.literal("open_page"), url: webUrl }),
      z.strictObject({ type: z.enum(["find", "find_in_page"]), url: webUrl, pattern: z.string().nullish() }),
    ])
    .nullish(),
  results: ignored(z.unknown(), "the field agentic has the results"),
  agentic,
});

/** Items of server tools that a request may contain. */
export const serverItemSchemas = [codeCallItem, shellCallItem, shellOutputItem, webCallItem, mcpCallItem] as const;

export type ServerItem = z.output<(typeof serverItemSchemas)[number]>;

export const serverItemTypes = [
  "code_interpreter_call",
  "shell_call",
  "shell_call_output",
  "web_search_call",
  "mcp_call",
] as const;

export function isServerItem(item: { readonly type?: string | null | undefined }): item is ServerItem {
  return serverItemTypes.some((type) => type === item.type);
}

/** Call of a server tool in a conversation. `result`: result text; null if a separate item contains it. */
export interface EarlierCall {
  readonly round: number;
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  readonly result: string | null;
}

/** Returns the call in an item; null if the item contains only the result of a call. */
export function callOfItem(item: ServerItem, index: number): EarlierCall | null {
  const round = item.agentic?.round ?? index;
  const text = item.agentic?.arguments;
  switch (item.type) {
    case "code_interpreter_call":
      return {
        round,
        id: item.agentic?.call_id ?? item.id ?? `call_${index}`,
        name: serverToolNames.code_interpreter,
        arguments: text ?? JSON.stringify({ code: item.code ?? "" }),
        result: item.agentic?.result_content ?? logsOf(item),
      };
    case "shell_call":
      return {
        round,
        id: item.call_id,
        name: serverToolNames.shell,
        arguments: text ?? JSON.stringify({ commands: item.action.commands }),
        result: null,
      };
    case "mcp_call":
      return {
        round,
        id: item.agentic?.call_id ?? item.id ?? `call_${index}`,
        // In items from other servers, a tool name is unique only within its MCP server.
        name: item.agentic || item.server_label === serverLabel ? item.name : `${item.server_label}_${item.name}`,
        arguments: item.arguments,
        result: item.agentic?.result_content ?? item.output ?? "",
      };
    case "web_search_call":
      return {
        round,
        id: item.agentic?.call_id ?? item.id ?? `call_${index}`,
        ...webCallOf(item),
        ...(text === undefined ? {} : { arguments: text }),
        // Items from other servers contain only the sources, not the text that the model read.
        result: item.agentic?.result_content ?? JSON.stringify({ sources: sourcesOf(item) }),
      };
    default:
      return null;
  }
}

type WebCall = z.output<typeof webCallItem>;

function webCallOf({ action }: WebCall): Pick<EarlierCall, "name" | "arguments"> {
  if (action?.type === "search" || !action) {
    const query = action?.query ?? action?.queries?.[0] ?? "";
    return { name: webToolNames.search, arguments: JSON.stringify({ query }) };
  }
  return { name: webToolNames.page, arguments: JSON.stringify({ url: action.url ?? "" }) };
}

function sourcesOf({ action }: WebCall): readonly string[] {
  return action?.type === "search" ? (action.sources ?? []).flatMap(({ url }) => url ?? []) : [];
}

/** Label of the server's built-in tools in mcp_call items. */
export const serverLabel = builtInPrefix.slice(0, -1);

/** Returns the result text of a shell call. */
export function shellResult(item: Extract<ServerItem, { readonly type: "shell_call_output" }>): string {
  return item.agentic?.result_content ?? JSON.stringify({ output: item.output });
}

/** Returns the id of the container in which a tool ran; null if the item names none. */
export function containerOf(item: ServerItem): string | null {
  return item.agentic?.container_id ?? (item.type === "code_interpreter_call" ? (item.container_id ?? null) : null);
}

function logsOf({ outputs }: z.output<typeof codeCallItem>): string {
  return (outputs ?? []).flatMap((output) => (output.type === "logs" ? [output.logs] : [])).join("\n");
}
