// Schema of `input` in a response request: a text, or items (messages, tool calls and their results, reasoning). Known but
// unsupported item types are rejected with an error that names the type. conversation.ts translates the items.
import { z } from "zod";
import { expected, expectedVariant } from "../../issues.ts";
import { fileFields, filePartProblem } from "../../shared/agent/file-part.ts";
import { audioPart } from "../../shared/audio/audio-part.ts";
import { ignored, notYet, refusedVariants } from "../../shared/fields/fields.ts";
import { cacheHint } from "../../shared/fields/openai-fields.ts";
import { serverItemSchemas, serverItemTypes } from "../server-tools/input-items.ts";
import { MAX_COMPACTION_LENGTH, summaryIn } from "./compaction.ts";

const MAX_URL_LENGTH = 8192;
const MAX_ID_LENGTH = 256;
const MAX_NAME_LENGTH = 256;
export const MAX_ITEMS = 50_000;

const refusedParts = ["image_url", "computer_screenshot"] as const;
const refusedItems = [
  "custom_tool_call",
  "custom_tool_call_output",
  "file_search_call",
  "computer_call",
  "computer_call_output",
  "image_generation_call",
  "local_shell_call",
  "local_shell_call_output",
  "apply_patch_call",
  "apply_patch_call_output",
  "mcp_list_tools",
  "mcp_approval_request",
  "mcp_approval_response",
  "tool_search_call",
  "tool_search_output",
  "additional_tools",
  "compaction_trigger",
  "program",
  "program_output",
] as const;

const id = z.string().max(MAX_ID_LENGTH).nullish();
const status = z.enum(["in_progress", "completed", "incomplete"]).nullish();
// Clients send back items of earlier responses, with fields that their libraries have added. These fields are ignored.
const added = ignored(z.unknown(), "a field that client libraries add");
const phase = ignored(z.string(), "the prompt does not contain it");
const caller = ignored(z.unknown(), "only the model calls tools");

const inputText = z.strictObject({
  type: z.literal("input_text"),
  text: z.string(),
  prompt_cache_breakpoint: cacheHint,
});
const plainText = z.strictObject({ type: z.literal("text"), text: z.string() });
const outputText = z.strictObject({
  type: z.literal("output_text"),
  text: z.string(),
  annotations: ignored(z.array(z.unknown()), "the prompt contains only the text"),
  logprobs: ignored(z.array(z.unknown()), "the prompt contains only the text"),
  parsed: added,
});
const refusal = z.strictObject({ type: z.literal("refusal"), refusal: z.string() });
const mediaPart = refusedVariants(
  refusedParts,
  (type) => `${notYet(`a content part of type "${type}"`)}; send parts of type "input_text" and "input_image"`,
);

const inputImagePart = z
  .strictObject({
    type: z.literal("input_image"),
    image_url: z.string().min(1).nullish().meta({ description: "A data URL (base64) or an http(s) URL of an image." }),
    file_id: fileFields.file_id,
    detail: ignored(z.string(), "an image is encoded at the size of the model"),
    prompt_cache_breakpoint: cacheHint,
  })
  .superRefine(({ image_url: url, file_id: id }, context) => {
    if ((typeof url === "string") !== (typeof id === "string")) return;
    context.addIssue({ code: "custom", message: "expected either image_url or file_id" });
  });

const inputVideoPart = z
  .strictObject({
    type: z.literal("input_video"),
    video_url: z.string().min(1).nullish().meta({
      description: "A data URL (base64) or an http(s) URL of a video. The model is shown max_num_frames of its frames.",
    }),
    file_id: fileFields.file_id,
    prompt_cache_breakpoint: cacheHint,
  })
  .superRefine(({ video_url: url, file_id: id }, context) => {
    if ((typeof url === "string") !== (typeof id === "string")) return;
    context.addIssue({ code: "custom", message: "expected either video_url or file_id" });
  });

const inputFilePart = z
  .strictObject({
    type: z.literal("input_file"),
    ...fileFields,
    file_url: z
      .url({ protocol: /^https?$/ })
      .max(MAX_URL_LENGTH)
      .nullish(),
    detail: ignored(z.string(), "the prompt contains the file's metadata and the beginning of its text"),
  })
  .superRefine(({ file_url: url, ...part }, context) => {
    const hasOther = typeof part.file_id === "string" || typeof part.file_data === "string";
    if (typeof url === "string" && !hasOther) return;
    const problem = typeof url === "string" ? "expected one of file_id, file_data and file_url" : filePartProblem(part);
    if (problem !== null) context.addIssue({ code: "custom", message: problem });
  });

const part = z.discriminatedUnion(
  "type",
  [inputText, inputImagePart, inputVideoPart, audioPart, outputText, plainText, refusal, mediaPart],
  {
    error: expectedVariant("a content part", "type", [
      "input_text",
      "input_image",
      "input_video",
      "input_audio",
      "output_text",
      "refusal",
      ...refusedParts,
    ]),
  },
);
const messagePart = z.discriminatedUnion(
  "type",
  [inputText, inputImagePart, inputVideoPart, audioPart, outputText, plainText, refusal, inputFilePart, mediaPart],
  {
    error: expectedVariant("a content part", "type", [
      "input_text",
      "input_image",
      "input_video",
      "input_audio",
      "input_file",
      "output_text",
      "refusal",
      ...refusedParts,
    ]),
  },
);

const messageContent = z.union([z.string(), z.array(messagePart).max(MAX_ITEMS)], {
  error: expected("a string or an array of content parts"),
});
const content = z.union([z.string(), z.array(part).max(MAX_ITEMS)], {
  error: expected("a string or an array of content parts"),
});

const message = z.strictObject({
  type: z.literal("message").nullish(),
  role: z.enum(["user", "assistant", "system", "developer"]),
  content: messageContent,
  id,
  status,
  phase,
});

const itemReference = z.strictObject({ type: z.literal("item_reference"), id: z.string().min(1).max(MAX_ID_LENGTH) });

const functionCall = z.strictObject({
  type: z.literal("function_call"),
  call_id: z.string().min(1).max(MAX_ID_LENGTH),
  name: z.string().min(1).max(MAX_NAME_LENGTH),
  arguments: z.string().meta({ description: "Arguments as JSON text." }),
  id,
  status,
  namespace: z.string().max(MAX_NAME_LENGTH).nullish().meta({ description: "Namespace of the function." }),
  caller,
  parsed_arguments: added,
});

const functionCallOutput = z.strictObject({
  type: z.literal("function_call_output"),
  call_id: z
    .string()
    .min(1)
    .max(MAX_ID_LENGTH)
    .meta({ description: "Id of the call of an earlier item that this result belongs to." }),
  output: content,
  id,
  status,
  caller,
});

const reasoningText = z.strictObject({ type: z.enum(["reasoning_text", "text"]), text: z.string() });
const summaryText = z.strictObject({ type: z.literal("summary_text"), text: z.string() });

const reasoning = z.strictObject({
  type: z.literal("reasoning"),
  id,
  summary: z.array(summaryText).max(MAX_ITEMS).nullish().meta({ description: "Used if there is no content." }),
  content: z.array(reasoningText).max(MAX_ITEMS).nullish(),
  encrypted_content: ignored(z.string(), "the reasoning item is not encrypted; it is in content"),
  status,
});

const compaction = z.strictObject({
  type: z.literal("compaction"),
  encrypted_content: z
    .string()
    .max(MAX_COMPACTION_LENGTH)
    .refine((content) => summaryIn(content) !== null, {
      error: "expected the content of a compaction item of this server; send the conversation instead",
    })
    .meta({ description: "Summary of an earlier conversation, from POST /v1/responses/compact." }),
  id,
  status,
  created_by: added,
});

const refusedItem = refusedVariants(refusedItems, (type) => notYet(`an item of type "${type}"`));

const item = z.discriminatedUnion(
  "type",
  [message, functionCall, functionCallOutput, ...serverItemSchemas, reasoning, compaction, itemReference, refusedItem],
  {
    error: expectedVariant("an item", "type", [
      "message",
      "function_call",
      "function_call_output",
      ...serverItemTypes,
      "reasoning",
      "compaction",
      "item_reference",
    ]),
  },
);

export const inputSchema = z
  .union([z.string(), z.array(item).max(MAX_ITEMS)], { error: expected("a string or an array of items") })
  .meta({ description: "New items of the conversation; a string is a single user message." });

export type WireItem = Exclude<z.output<typeof inputSchema>, string>[number];
export type ItemReference = Extract<WireItem, { readonly type: "item_reference" }>;
/** Input item that is not a reference. */
export type InputItem = Exclude<WireItem, ItemReference>;
/** Item with an id, as it is stored and sent to clients. */
export type NamedItem = InputItem & { readonly id: string };
