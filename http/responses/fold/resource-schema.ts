// Response schemas of the responses routes: the response resource, its items, and the stream events. The API document and the
// types of the fold are derived from them.
import { z } from "zod";
import { agentAnswerFields, approvalRequestSchema, fileObjectSchema, progressSchema } from "../../shared/agent/wire.ts";
import { adapterGeneration } from "../../shared/answer/adapter-generation.ts";
import { tokenLogprobSchema } from "../../shared/answer/logprobs.ts";
import { mcpTool } from "../../shared/fields/tools/mcp-tool.ts";
import { codeInterpreterTool, shellTool } from "../../shared/fields/tools/tool-fields.ts";
import { webSearchTool } from "../../shared/fields/tools/web-search.ts";
import { agenticSchema } from "../server-tools/input-items.ts";

const status = z.enum(["in_progress", "completed", "incomplete"]);
const serverStatus = z.enum(["in_progress", "completed", "incomplete", "failed"]);

/** Citation of a file that a server tool produced. */
const fileCitationSchema = z
  .strictObject({
    type: z.literal("container_file_citation"),
    container_id: z.string(),
    file_id: z.string(),
    filename: z.string(),
    start_index: z.int().min(0),
    end_index: z.int().min(0),
  })
  .meta({ id: "ResponseFileCitation" });

const urlCitationSchema = z
  .strictObject({
    type: z.literal("url_citation"),
    url: z.string(),
    title: z.string(),
    start_index: z.int().min(0),
    end_index: z.int().min(0),
  })
  .meta({ id: "ResponseUrlCitation" });

const annotationSchema = z.discriminatedUnion("type", [fileCitationSchema, urlCitationSchema]);

export type Annotation = z.output<typeof annotationSchema>;

export const outputTextSchema = z
  .strictObject({
    type: z.literal("output_text"),
    text: z.string(),
    annotations: z.array(annotationSchema),
    logprobs: z.array(tokenLogprobSchema),
  })
  .meta({ id: "ResponseOutputText" });

export const refusalSchema = z
  .strictObject({ type: z.literal("refusal"), refusal: z.string() })
  .meta({ id: "ResponseRefusal" });

export const reasoningTextSchema = z
  .strictObject({ type: z.literal("reasoning_text"), text: z.string() })
  .meta({ id: "ResponseReasoningText" });

export const outputItemSchema = z
  .discriminatedUnion("type", [
    z.strictObject({
      id: z.string(),
      type: z.literal("message"),
      status,
      role: z.literal("assistant"),
      content: z.array(z.discriminatedUnion("type", [outputTextSchema, refusalSchema])),
    }),
    z.strictObject({
      id: z.string(),
      type: z.literal("function_call"),
      status: status.meta({ description: "incomplete: cut off, or the arguments are not valid JSON." }),
      call_id: z.string(),
      name: z.string(),
      namespace: z.string().optional().meta({ description: "Absent if the function has no namespace." }),
      arguments: z.string(),
    }),
    z.strictObject({
      id: z.string(),
      type: z.literal("reasoning"),
      status,
      summary: z.array(z.never()),
      content: z.array(reasoningTextSchema),
    }),
    z.strictObject({
      id: z.string(),
      type: z.literal("code_interpreter_call"),
      status: serverStatus,
      code: z.string(),
      container_id: z.string(),
      outputs: z
        .array(
          z.discriminatedUnion("type", [
            z.strictObject({ type: z.literal("logs"), logs: z.string() }),
            z.strictObject({ type: z.literal("image"), url: z.string().meta({ description: "A data URL." }) }),
          ]),
        )
        .nullable(),
      agentic: agenticSchema,
    }),
    z.strictObject({
      id: z.string(),
      type: z.literal("shell_call"),
      status: serverStatus,
      call_id: z.string(),
      action: z.strictObject({
        commands: z.array(z.string()),
        timeout_ms: z.number().nullable(),
        max_output_length: z.number().nullable(),
      }),
      agentic: agenticSchema,
    }),
    z.strictObject({
      id: z.string(),
      type: z.literal("shell_call_output"),
      status: serverStatus,
      call_id: z.string(),
      output: z.array(
        z.strictObject({
          stdout: z.string(),
          stderr: z.string(),
          outcome: z.discriminatedUnion("type", [
            z.strictObject({ type: z.literal("exit"), exit_code: z.int() }),
            z.strictObject({ type: z.literal("timeout") }),
          ]),
        }),
      ),
      max_output_length: z.number().nullable(),
      agentic: agenticSchema,
    }),
    z
      .strictObject({
        id: z.string(),
        type: z.literal("mcp_call"),
        status: serverStatus,
        server_label: z.string(),
        name: z.string(),
        arguments: z.string(),
        output: z.string().nullable(),
        error: z.null(),
        agentic: agenticSchema,
      })
      .meta({ description: "A call of another tool that the server ran." }),
    z.strictObject({
      id: z.string(),
      type: z.literal("web_search_call"),
      status: z.enum(["in_progress", "searching", "completed", "incomplete", "failed"]),
      action: z.discriminatedUnion("type", [
        z.strictObject({
          type: z.literal("search"),
          query: z.string(),
          queries: z.array(z.string()),
          sources: z.array(z.strictObject({ type: z.literal("url"), url: z.string() })).optional(),
        }),
        z.strictObject({ type: z.literal("open_page"), url: z.string() }),
      ]),
      agentic: agenticSchema,
    }),
  ])
  .meta({ id: "ResponseOutputItem" });

export type OutputText = z.output<typeof outputTextSchema>;
export type Refusal = z.output<typeof refusalSchema>;
export type OutputItem = z.output<typeof outputItemSchema>;
export type MessageItem = Extract<OutputItem, { type: "message" }>;
export type FunctionCallItem = Extract<OutputItem, { type: "function_call" }>;
export type ReasoningItem = Extract<OutputItem, { type: "reasoning" }>;
export type CodeCallItem = Extract<OutputItem, { type: "code_interpreter_call" }>;
export type ShellCallItem = Extract<OutputItem, { type: "shell_call" }>;
export type ShellOutputItem = Extract<OutputItem, { type: "shell_call_output" }>;
export type McpCallItem = Extract<OutputItem, { type: "mcp_call" }>;
export type WebCallItem = Extract<OutputItem, { type: "web_search_call" }>;
export type ItemStatus = z.output<typeof status>;

const errorSchema = z.strictObject({
  type: z.enum(["validation_error", "internal_error"]),
  code: z.string(),
  message: z.string(),
  param: z.string().optional(),
});

const usageSchema = z.strictObject({
  input_tokens: z.int(),
  input_tokens_details: z.strictObject({ cached_tokens: z.int(), cache_write_tokens: z.int() }),
  output_tokens: z.int(),
  output_tokens_details: z.strictObject({ reasoning_tokens: z.int() }),
  total_tokens: z.int(),
});

const functionTool = z.strictObject({
  type: z.literal("function"),
  name: z.string(),
  description: z.string().nullable(),
  parameters: z.record(z.string(), z.unknown()).nullable(),
  strict: z.boolean(),
});

const namespaceTool = z.strictObject({
  type: z.literal("namespace"),
  name: z.string(),
  description: z.string().nullable(),
  tools: z.array(functionTool),
});

const settings = {
  background: z.boolean(),
  instructions: z.string().nullable(),
  max_output_tokens: z.int().nullable(),
  max_tool_calls: z.int().nullable(),
  parallel_tool_calls: z.boolean(),
  previous_response_id: z.string().nullable(),
  prompt_cache_key: z.string().nullable(),
  reasoning: z.strictObject({ effort: z.string().nullable(), summary: z.string().nullable() }),
  safety_identifier: z.string().nullable(),
  service_tier: z.literal("default"),
  store: z.boolean(),
  temperature: z.number(),
  text: z.strictObject({ format: z.looseObject({ type: z.string() }), verbosity: z.string() }),
  tool_choice: z.union([z.string(), z.looseObject({ type: z.string() })]),
  tools: z.array(
    z.discriminatedUnion("type", [functionTool, namespaceTool, codeInterpreterTool, shellTool, webSearchTool, mcpTool]),
  ),
  top_logprobs: z.int(),
  top_p: z.number(),
  presence_penalty: z.number(),
  frequency_penalty: z.number(),
  truncation: z.enum(["auto", "disabled"]),
  user: z.string().nullable(),
  metadata: z.record(z.string(), z.string()),
};

export const responseSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("response"),
    created_at: z.int().meta({ description: "Unix time in seconds." }),
    completed_at: z.int().nullable(),
    status: z.enum(["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]),
    error: errorSchema.nullable(),
    incomplete_details: z
      .strictObject({ reason: z.enum(["max_output_tokens", "max_tool_calls", "interrupted"]) })
      .nullable()
      .meta({
        description:
          "max_tool_calls: the limit of tool rounds or tool calls is reached; interrupted: the client disconnected, the server stopped, or the response was cancelled.",
      }),
    model: z.string(),
    output: z.array(outputItemSchema),
    output_text: z.string().meta({ description: "The texts of all output messages, concatenated." }),
    usage: usageSchema.nullable(),
    adapter_generation: adapterGeneration,
    session_id: agentAnswerFields.session_id,
    ...settings,
  })
  .meta({ id: "Response" });

type WireResponse = z.output<typeof responseSchema>;
export type ResponseStatus = WireResponse["status"];
export type IncompleteReason = NonNullable<WireResponse["incomplete_details"]>["reason"];

const compactedItemSchema = z.discriminatedUnion("type", [
  z
    .looseObject({ type: z.literal("message"), id: z.string(), role: z.enum(["system", "developer"]) })
    .meta({ description: "A message with instructions, unchanged." }),
  z.strictObject({
    type: z.literal("compaction"),
    id: z.string(),
    encrypted_content: z.string().meta({ description: "Opaque content: the summary of all other items." }),
  }),
]);

export const compactedSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("response.compaction"),
    created_at: z.int().meta({ description: "Unix time in seconds." }),
    output: z.array(compactedItemSchema),
    usage: usageSchema,
  })
  .meta({ id: "CompactedResponse" });

export const deletedSchema = z
  .strictObject({ id: z.string(), object: z.literal("response.deleted"), deleted: z.literal(true) })
  .meta({ id: "DeletedResponse" });

export const inputItemListSchema = z
  .strictObject({
    object: z.literal("list"),
    data: z.array(z.looseObject({ id: z.string(), type: z.string() })),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  })
  .meta({ id: "ResponseInputItemList" });

const sequence_number = z.int().min(0);
const inItem = { sequence_number, item_id: z.string(), output_index: z.int().min(0) };
const inPart = { ...inItem, content_index: z.int().min(0) };
const part = z.discriminatedUnion("type", [outputTextSchema, refusalSchema, reasoningTextSchema]);

function named<Name extends string, Fields extends z.ZodRawShape>(name: Name, fields: Fields) {
  return z.strictObject({ type: z.literal(name), ...fields });
}

const lifecycle = { sequence_number, response: responseSchema };
const item = { sequence_number, output_index: z.int().min(0), item: outputItemSchema };

/** Schema of the data of one stream event. */
export const responseEventSchema = z
  .discriminatedUnion("type", [
    named("response.created", lifecycle),
    named("response.queued", lifecycle),
    named("response.in_progress", lifecycle),
    named("response.completed", lifecycle),
    named("response.failed", lifecycle),
    named("response.incomplete", lifecycle),
    named("response.output_item.added", item),
    named("response.output_item.done", item),
    named("response.content_part.added", { ...inPart, part }),
    named("response.content_part.done", { ...inPart, part }),
    named("response.output_text.delta", { ...inPart, delta: z.string(), logprobs: z.array(tokenLogprobSchema) }),
    named("response.output_text.done", { ...inPart, text: z.string(), logprobs: z.array(tokenLogprobSchema) }),
    named("response.refusal.delta", { ...inPart, delta: z.string() }),
    named("response.refusal.done", { ...inPart, refusal: z.string() }),
    named("response.reasoning_text.delta", { ...inPart, delta: z.string() }),
    named("response.reasoning_text.done", { ...inPart, text: z.string() }),
    named("response.output_text.annotation.added", {
      ...inPart,
      annotation_index: z.int().min(0),
      annotation: annotationSchema,
    }),
    named("response.web_search_call.in_progress", inItem),
    named("response.web_search_call.searching", inItem),
    named("response.web_search_call.completed", inItem),
    named("response.mcp_call.in_progress", inItem),
    named("response.mcp_call_arguments.delta", { ...inItem, delta: z.string() }),
    named("response.mcp_call_arguments.done", { ...inItem, arguments: z.string() }),
    named("response.mcp_call.completed", inItem),
    named("response.mcp_call.failed", inItem),
    named("response.code_interpreter_call.in_progress", inItem),
    named("response.code_interpreter_call_code.done", { ...inItem, code: z.string() }),
    named("response.code_interpreter_call.interpreting", inItem),
    named("response.code_interpreter_call.completed", inItem),
    progressSchema.extend({ sequence_number }),
    approvalRequestSchema.extend({ sequence_number }),
    fileObjectSchema.extend({ type: z.literal("file_produced"), sequence_number }),
    named("response.function_call_arguments.delta", { ...inItem, delta: z.string() }),
    named("response.function_call_arguments.done", { ...inItem, name: z.string(), arguments: z.string() }),
    named("error", {
      sequence_number,
      code: z.string(),
      message: z.string(),
      param: z.string().nullable(),
      error: errorSchema,
    }),
  ])
  .meta({ id: "ResponseStreamEvent" });
