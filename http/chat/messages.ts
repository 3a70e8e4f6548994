// Schema of `messages` in a chat request: roles, content as a string or as parts, tool calls and their results. Known but
// unsupported parts, roles and calls are rejected with an error that names them. conversation.ts translates the messages.
import { z } from "zod";
import { expected, expectedVariant } from "../issues.ts";
import { fileFields, filePartProblem } from "../shared/agent/file-part.ts";
import {
  ignored,
  isEmptyArray,
  notBuiltYet,
  notYet,
  refusalIssue,
  refused,
  refusedVariants,
} from "../shared/fields/fields.ts";
import { cacheHint } from "../shared/fields/openai-fields.ts";

const MAX_NAME_LENGTH = 256;
const MAX_CALL_ID_LENGTH = 256;
const MAX_CALLS = 256;

const media = {
  image_url: "images",
  audio_url: "audio",
  input_audio: "audio",
  video_url: "video",
} as const;
const mediaTypes = ["image_url", "audio_url", "input_audio", "video_url"] as const;
const roles = ["system", "developer", "user", "assistant", "tool"];

const TOOLS_INSTEAD = 'functions are deprecated; send tools, tool_calls and messages of role "tool"';

const textPart = z.strictObject({
  type: z.literal("text"),
  text: z.string(),
  prompt_cache_breakpoint: cacheHint,
});

const refusalPart = z.strictObject({ type: z.literal("refusal"), refusal: z.string() });

const mediaPart = refusedVariants(
  mediaTypes,
  (type) => `${notYet(`a content part of type "${type}"`)}: its models take text, not ${media[type]}`,
);

const filePart = z.strictObject({
  type: z.literal("file"),
  file: z.strictObject(fileFields).superRefine((file, context) => {
    const problem = filePartProblem(file);
    if (problem !== null) context.addIssue({ code: "custom", message: problem });
  }),
});

const part = z.discriminatedUnion("type", [textPart, mediaPart], {
  error: expectedVariant("a content part", "type", ["text", ...mediaTypes]),
});
const userPart = z.discriminatedUnion("type", [textPart, filePart, mediaPart], {
  error: expectedVariant("a content part", "type", ["text", "file", ...mediaTypes]),
});
const assistantPart = z.discriminatedUnion("type", [textPart, refusalPart, mediaPart], {
  error: expectedVariant("a content part", "type", ["text", "refusal", ...mediaTypes]),
});

const contentError = { error: expected("a string or an array of content parts") };
const content = z.union([z.string(), z.array(part)], contentError);
const userContent = z.union([z.string(), z.array(userPart)], contentError);
const assistantContent = z.union([z.string(), z.array(assistantPart)], contentError);

const name = z.string().max(MAX_NAME_LENGTH).nullish();
const callId = z.string().min(1).max(MAX_CALL_ID_LENGTH);

// Clients send back messages of earlier responses, with fields that their libraries have added. These fields are ignored.
const added = ignored(z.unknown(), "a field that client libraries add");

const functionCall = z.strictObject({
  id: callId.nullish(),
  type: z.literal("function"),
  function: z.strictObject({
    name: z.string().min(1).max(MAX_NAME_LENGTH),
    arguments: z.string().meta({ description: "Arguments as JSON text." }),
    parsed_arguments: added,
  }),
  index: ignored(z.int(), "calls have the order of the list"),
});

const customCall = refusedVariants(
  ["custom"],
  () => `${notYet('a call of type "custom"')}; send calls of type "function"`,
);

const toolCall = z.discriminatedUnion("type", [functionCall, customCall], {
  error: expectedVariant("a tool call", "type", ["function"]),
});

const assistant = z.strictObject({
  role: z.literal("assistant"),
  content: assistantContent.nullish(),
  name,
  refusal: ignored(z.string(), "the refused text is the content"),
  tool_calls: z.array(toolCall).max(MAX_CALLS).nullish(),
  reasoning_content: z.string().nullish().meta({ description: "Reasoning before the content." }),
  reasoning: z.string().nullish().meta({ description: "Alias of reasoning_content." }),
  function_call: refused(TOOLS_INSTEAD),
  audio: notBuiltYet("audio"),
  annotations: notBuiltYet("an annotation", isEmptyArray),
  parsed: added,
});

const tool = z.strictObject({
  role: z.literal("tool"),
  content,
  tool_call_id: callId.meta({ description: "Id of the call of an earlier message that this result belongs to." }),
  name,
});

const functionResult = z
  .looseObject({ role: z.literal("function") })
  .meta({ support: "refused", description: `Refused: ${TOOLS_INSTEAD}` })
  .transform((_message, context): never => {
    context.addIssue(refusalIssue(TOOLS_INSTEAD, "role"));
    return z.NEVER;
  });

const message = z.discriminatedUnion(
  "role",
  [
    z.strictObject({ role: z.literal("system"), content, name }),
    z.strictObject({ role: z.literal("developer"), content, name }),
    z.strictObject({ role: z.literal("user"), content: userContent, name }),
    assistant,
    tool,
    functionResult,
  ],
  { error: expectedVariant("a message object", "role", roles) },
);

export const messagesSchema = z
  .union([z.string().min(1), z.array(message).min(1)], { error: expected("a string or an array of messages") })
  .meta({ description: "The conversation; a string is a single user message." });

export type WireMessages = z.output<typeof messagesSchema>;
export type WireMessage = Exclude<WireMessages, string>[number];
