// Response objects of the agent loop in all protocols: file objects, tool call records, and the bodies of extension events,
// with their schemas for the API document.
import { z } from "zod";
import type { AgentEvent, InlineContent, ToolCallRecord } from "../../../actors/api/agent/agents.ts";
import type { StoredFile } from "../../../actors/api/agent/files.ts";

const integer = z.int().min(0);

export const fileObjectSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("file"),
    name: z.string(),
    format: z.string().nullable(),
    mime_type: z.string(),
    bytes: integer,
    created_at: integer.meta({ description: "Unix time in seconds." }),
    purpose: z.enum(["agent_output", "user_data"]),
    source: z.strictObject({ tool: z.string(), round: integer, turn: integer }),
    text: z.string().optional().meta({ description: "Content of a text file of at most 8 MiB." }),
    preview: z.string().optional().meta({ description: "Beginning of the text." }),
    data_base64: z.string().optional().meta({ description: "Content of a binary file of at most 8 MiB, in base64." }),
    code: z.string().optional().meta({ description: "Why the file could not be produced." }),
    message: z.string().optional(),
  })
  .meta({ id: "FileObject" });

export type WireFile = z.output<typeof fileObjectSchema>;

export function wireFile(file: StoredFile, inline: InlineContent | null): WireFile {
  const { id, name, format, mimeType, bytes, createdAt, purpose, source, preview, failure } = file;
  return {
    id,
    object: "file",
    name,
    format,
    mime_type: mimeType,
    bytes,
    created_at: createdAt,
    purpose,
    source,
    ...(preview === null ? {} : { preview }),
    ...(inline ?? {}),
    ...(failure ?? {}),
  };
}

export const toolCallRecordSchema = z
  .strictObject({
    round: integer,
    name: z.string(),
    arguments: z.string().meta({ description: "Arguments as JSON text." }),
    result_content: z.string(),
    result_images_base64: z.array(z.string()).readonly().optional(),
    file_ids: z.array(z.string()).readonly().optional(),
  })
  .meta({ id: "AgenticToolCall" });

/** Response fields for requests that use the agent loop. Empty fields are omitted. */
export const agentAnswerFields = {
  session_id: z.string().optional().meta({ description: "Session to send with the next request." }),
  agentic_tool_calls: z.array(toolCallRecordSchema).readonly().optional(),
  files: z.array(fileObjectSchema).readonly().optional(),
} as const;

type AgentAnswerFields = z.output<z.ZodObject<typeof agentAnswerFields>>;

/** Results of an agent run, without the generated text. */
export interface RunRecord {
  readonly sessionId: string;
  readonly calls: readonly ToolCallRecord[];
  readonly files: readonly WireFile[];
  /** Whether the run ended because it reached the limit of tool rounds. */
  readonly isLimited: boolean;
}

/** Maximum number of files listed in a response body. The file store has all files of the run. */
const MAX_BODY_FILES = 64;

export function agentFieldsOf(run: RunRecord | null): AgentAnswerFields {
  if (run === null) return {};
  const { sessionId, calls, files } = run;
  return {
    session_id: sessionId,
    ...(calls.length === 0 ? {} : { agentic_tool_calls: calls }),
    ...(files.length === 0 ? {} : { files: files.slice(0, MAX_BODY_FILES) }),
  };
}

/** Events of the agent loop that extend the protocols. */
export type ExtensionEvent = Extract<AgentEvent, { readonly type: "tool_progress" | "approval" | "file" }>;

export const progressSchema = z
  .strictObject({
    type: z.literal("agentic_tool_call_progress"),
    round: integer,
    tool_name: z.string(),
    phase: z.enum(["calling", "complete"]),
    data: z.looseObject({ tool_type: z.enum(["code_execution", "web_search", "shell", "custom"]) }),
  })
  .meta({ id: "AgenticToolCallProgress" });

export const approvalRequestSchema = z
  .strictObject({
    type: z.literal("agentic_tool_approval_required"),
    approval_id: z.string(),
    session_id: z.string(),
    round: integer,
    tool: z.strictObject({
      source: z.enum(["built_in", "user", "mcp", "external"]),
      kind: z.enum(["code_execution", "web_search", "shell", "file", "custom", "external"]),
      label: z.string(),
    }),
    arguments: z.unknown(),
  })
  .meta({ id: "AgenticToolApprovalRequired" });

/** Returns the name and the body of an extension event. */
export function extensionEvent(event: ExtensionEvent): { readonly name: string; readonly body: object } {
  if (event.type === "approval") return { name: event.request.type, body: event.request };
  if (event.type === "file") return { name: "file_produced", body: wireFile(event.file, event.inline) };
  const { round, call, phase, data } = event;
  const name = "agentic_tool_call_progress";
  return { name, body: { type: name, round, tool_name: call.name, phase, data } };
}

/** Returns an extension event as a named server-sent event. */
export function extensionText(event: ExtensionEvent): string {
  const { name, body } = extensionEvent(event);
  return `event: ${name}\ndata: ${JSON.stringify(body)}\n\n`;
}
