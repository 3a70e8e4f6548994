// Schema of `messages` in a chat request: roles, content as a string or as parts, tool calls and their results. Known but
// unsupported parts, roles and calls are rejected with an error that names them. conversation.ts translates the messages.
import { z } from "zod";
import { expected, expectedVariant } from "../issues.ts";
import { fileFields, filePartProblem } from "../shared/agent/file-part.ts";
import { audioPart } from "../shared/audio/audio-part.ts";
import { ignored, notBuiltYet, notYet, refusalIssue, refused, refusedVariants } from "../shared/fields/fields.ts";
import { cacheHint } from "../shared/fields/openai-fields.ts";

const MAX_NAME_LENGTH = 256;
const MAX_CALL_ID_LENGTH = 256;
const MAX_CALLS = 256;

const roles = ["system", "developer", "user", "assistant", "tool"];

const TOOLS_INSTEAD = 'functions are deprecated; send tools, tool_calls and messages of role "tool"';

const textPart = z.strictObject({
  type: z.literal("text"),
  text: z.string(),
  prompt_cache_breakpoint: cacheHint,
});

const refusalPart = z.strictObject({ type: z.literal("refusal"), refusal: z.string() });

const audioUrlPart = z.strictObject({
  type: z.literal("audio_url"),
  audio_url: z.union(
    [
      z.string().min(1),
      z.strictObject({
        url: z.string().min(1).meta({ description: "A data URL (base64) or an http(s) URL of audio." }),
      }),
    ],
    { error: expected("a URL, or an object with a url") },
  ),
});

const filePart = z.strictObject({
  type: z.literal("file"),
  file: z.strictObject(fileFields).superRefine((file, context) => {
    const problem = filePartProblem(file);
    if (problem !== null) context.addIssue({ code: "custom", message: problem });
  }),
});

const imagePart = z.strictObject({
  type: z.literal("image_url"),
  image_url: z.union(
    [
      z.string().min(1),
      z.strictObject({
        url: z.string().min(1).meta({ description: "A data URL (base64) or an http(s) URL of an image." }),
        detail: ignored(z.enum(["auto", "low", "high", "original"]), "an image is encoded at the size of the model"),
      }),
    ],
    { error: expected("a URL, or an object with a url") },
  ),
});

const videoPart = z.strictObject({
  type: z.literal("video_url"),
  video_url: z.union(
    [
      z.string().min(1),
      z.strictObject({
        url: z.string().min(1).meta({
          description:
            "A data URL (base64) or an http(s) URL of a video. The model is shown max_num_frames of its frames.",
        }),
      }),
    ],
    { error: expected("a URL, or an object with a url") },
  ),
});

const part = z.discriminatedUnion("type", [textPart, imagePart, videoPart, audioPart, audioUrlPart], {
  error: expectedVariant("a content part", "type", ["text", "image_url", "video_url", "input_audio", "audio_url"]),
});
const userPart = z.discriminatedUnion("type", [textPart, imagePart, videoPart, audioPart, audioUrlPart, filePart], {
  error: expectedVariant("a content part", "type", [
    "text",
    "image_url",
    "video_url",
    "input_audio",
    "audio_url",
    "file",
  ]),
});
const assistantPart = z.discriminatedUnion("type", [textPart, refusalPart], {
  error: expectedVariant("a content part", "type", ["text", "refusal"]),
});

const contentError = { error: expected("a string or an array of content parts") };
const textContent = z.union(
  [
    z.string(),
    z.array(
      z.discriminatedUnion("type", [textPart], {
        error: expectedVariant("a content part", "type", ["text"]),
      }),
    ),
  ],
  contentError,
);
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
  annotations: ignored(z.array(z.unknown()), "the prompt contains only the text"),
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
    z.strictObject({ role: z.literal("system"), content: textContent, name }),
    z.strictObject({ role: z.literal("developer"), content: textContent, name }),
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
