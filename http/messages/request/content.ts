// Schemas of `messages` and `system` in a messages request: roles, and content as a string or as blocks. Blocks created by
// tools of other servers are ignored. Blocks that a text model cannot read are rejected with an error that names the block
// type.
import { z } from "zod";
import { expected, expectedVariant } from "../../issues.ts";
import { isBounded, tooLarge } from "../../shared/fields/bounded.ts";
import { ignored, notYet, refusedVariants } from "../../shared/fields/fields.ts";
import { toolName } from "./tools.ts";

const MAX_ID_LENGTH = 256;

export const cacheControl = ignored(z.looseObject({ type: z.string() }), "the prefix cache is automatic");

const textBlock = z.strictObject({
  type: z.literal("text"),
  text: z.string(),
  cache_control: cacheControl,
  citations: ignored(z.array(z.unknown()), "the prompt contains only the text"),
});

const thinkingBlock = z.strictObject({
  type: z.literal("thinking"),
  thinking: z.string(),
  signature: ignored(z.string(), "thinking is neither signed nor verified"),
});

const toolUseBlock = z.strictObject({
  type: z.literal("tool_use"),
  id: z.string().min(1).max(MAX_ID_LENGTH),
  name: toolName,
  input: z.record(z.string(), z.unknown()).refine(isBounded, { error: tooLarge("an object") }),
  cache_control: cacheControl,
  caller: ignored(z.looseObject({ type: z.string() }), "only the model calls tools"),
});

const refusedTypes = ["search_result", "browser_state"] as const;
const refusedBlock = refusedVariants(
  refusedTypes,
  (type) => `${notYet(`a content block of type "${type}"`)}; send its content as a block of type "text"`,
);

const imageSource = z.discriminatedUnion(
  "type",
  [
    z.strictObject({
      type: z.literal("base64"),
      media_type: z.string().max(MAX_ID_LENGTH).nullish(),
      data: z.string().min(1).meta({ description: "The image in base64." }),
    }),
    z.strictObject({
      type: z.literal("url"),
      url: z.string().min(1).meta({ description: "An http(s) URL or a data URL (base64) of an image." }),
    }),
    z.strictObject({ type: z.literal("file"), file_id: z.string().min(1).max(MAX_ID_LENGTH) }),
  ],
  { error: expectedVariant("an image source", "type", ["base64", "url", "file"]) },
);

const imageBlock = z.strictObject({ type: z.literal("image"), source: imageSource, cache_control: cacheControl });
const imagelessBlock = refusedVariants(["image"], () => "images are allowed in user messages only");

const uploadBlock = z.strictObject({
  type: z.literal("container_upload"),
  file_id: z.string().min(1).max(MAX_ID_LENGTH),
  cache_control: cacheControl,
});

const documentSource = z.discriminatedUnion(
  "type",
  [
    z.strictObject({
      type: z.literal("base64"),
      media_type: z.string().max(MAX_ID_LENGTH),
      data: z.string().meta({ description: "Content in base64." }),
    }),
    z.strictObject({ type: z.literal("text"), media_type: z.literal("text/plain").nullish(), data: z.string() }),
    z.strictObject({ type: z.literal("file"), file_id: z.string().min(1).max(MAX_ID_LENGTH) }),
    refusedVariants(["url", "content"], (type) => notYet(`a document with a source of type "${type}"`)),
  ],
  { error: expectedVariant("a document source", "type", ["base64", "text", "file"]) },
);

const documentBlock = z.strictObject({
  type: z.literal("document"),
  source: documentSource,
  title: z.string().max(MAX_ID_LENGTH).nullish().meta({ description: "File name of the document." }),
  context: ignored(z.string(), "the prompt contains the document's metadata and the beginning of its text"),
  citations: ignored(z.unknown(), "answers do not cite documents"),
  cache_control: cacheControl,
});

function content<const Blocks extends readonly [z.core.$ZodTypeDiscriminable, ...z.core.$ZodTypeDiscriminable[]]>(
  blocks: Blocks,
  taken: readonly string[],
  least = 0,
) {
  const block = z.discriminatedUnion("type", blocks, { error: expectedVariant("a content block", "type", taken) });
  return z.union([z.string(), z.array(block).min(least)], {
    error: expected("a string or an array of content blocks"),
  });
}

const textContent = content([textBlock, imagelessBlock, refusedBlock], ["text"]);

const toolReferenceBlock = z.strictObject({
  type: z.literal("tool_reference"),
  tool_name: toolName.meta({ description: "Tool with `defer_loading` that the model may call from now on." }),
  cache_control: cacheControl,
});

const resultContent = content(
  [textBlock, imageBlock, toolReferenceBlock, refusedBlock],
  ["text", "image", "tool_reference"],
);

const toolResultBlock = z.strictObject({
  type: z.literal("tool_result"),
  tool_use_id: z.string().min(1).max(MAX_ID_LENGTH),
  content: resultContent.nullish(),
  is_error: z.boolean().nullish().meta({ description: "Tell the model that the tool failed.", default: false }),
  cache_control: cacheControl,
});

// Blocks that only the server that created them can interpret.
const foreignTypes = [
  "redacted_thinking",
  "server_tool_use",
  "web_search_tool_result",
  "web_fetch_tool_result",
  "code_execution_tool_result",
  "bash_code_execution_tool_result",
  "text_editor_code_execution_tool_result",
  "tool_search_tool_result",
  "mcp_tool_use",
  "mcp_tool_result",
] as const;

const foreignBlock = z.looseObject({ type: z.enum(foreignTypes) }).meta({
  support: "ignored",
  description: "Ignored: these blocks concern only the server that created them; the prompt omits them",
});

const message = z.discriminatedUnion(
  "role",
  [
    z.strictObject({
      role: z.literal("user"),
      content: content(
        [textBlock, imageBlock, toolResultBlock, documentBlock, uploadBlock, refusedBlock],
        ["text", "image", "tool_result", "document", "container_upload"],
        1,
      ),
    }),
    z.strictObject({
      role: z.literal("assistant"),
      content: content(
        [textBlock, thinkingBlock, toolUseBlock, foreignBlock, imagelessBlock, refusedBlock],
        ["text", "thinking", "tool_use"],
      ),
    }),
    z.strictObject({ role: z.literal("system"), content: textContent }),
  ],
  { error: expectedVariant("a message object", "role", ["user", "assistant", "system"]) },
);

export const conversationFields = {
  messages: z.array(message).min(1).meta({ description: "The conversation." }),
  system: textContent.nullish().meta({ description: "System prompt before the messages." }),
} as const;

export type WireMessage = z.output<typeof message>;
export type WireText = z.output<typeof textContent>;
export type ToolResult = z.output<typeof toolResultBlock>;
export type ImageBlock = z.output<typeof imageBlock>;
export type FileBlock = z.output<typeof documentBlock> | z.output<typeof uploadBlock>;
export type AssistantContent = Extract<WireMessage, { readonly role: "assistant" }>["content"];
export type UserContent = Extract<WireMessage, { readonly role: "user" }>["content"];
