// Request of POST /api/chat: its schema and its translation to a GenerateRequest.
import { z } from "zod";
import type { ToolSpec } from "../../engines/generation.ts";
import { addConflicts } from "../shared/fields/conflicts.ts";
import { MediaCollector } from "../shared/fields/media-part.ts";
import { declaration, MAX_TOOLS, toolName, toolSpec } from "../shared/fields/tools/tool-fields.ts";
import { anyTool, toolConflicts, toolUse } from "../shared/fields/tools/tool-use.ts";
import { type AskedRequest, askedTranslator } from "../shared/translation.ts";
import {
  generationConflicts,
  generationFacts,
  generationFields,
  generationRequest,
  thinkingArguments,
} from "./fields.ts";
import { conversation, messagesField } from "./messages.ts";

const MAX_TOOL_NAME_LENGTH = 64;

const tool = z.strictObject({
  type: z.literal("function").nullish(),
  function: z.strictObject({ name: toolName(MAX_TOOL_NAME_LENGTH), ...declaration }),
});

export const chatRequestSchema = z
  .strictObject({
    messages: messagesField,
    tools: z
      .array(tool)
      .max(MAX_TOOLS)
      .nullish()
      .meta({ description: "Functions that the model may call and the client runs." }),
    ...generationFields,
  })
  .superRefine((body, context) => {
    addConflicts(context, toolConflicts(specsOf(body)));
    addConflicts(context, generationConflicts(body));
  });

type ChatRequestBody = z.output<typeof chatRequestSchema>;

export const chatTranslator = askedTranslator(
  "ollama-chat",
  chatRequestSchema,
  (body) => generationFacts(body, (body.messages ?? []).length === 0),
  askedRequest,
);

function askedRequest(body: ChatRequestBody): AskedRequest {
  const media = new MediaCollector();
  const messages = conversation(body.messages ?? [], media);
  const { all } = media;
  return {
    ...(all && { media: all }),
    ...generationRequest(body, "messages"),
    prompt: { kind: "chat", messages, templateArguments: thinkingArguments(body) },
    tools: toolUse(specsOf(body), anyTool, true),
  };
}

function specsOf({ tools }: Pick<ChatRequestBody, "tools">): readonly ToolSpec[] {
  return (tools ?? []).map(({ function: declared }) => toolSpec(declared.name, declared));
}
