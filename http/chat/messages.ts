// Owns the schema of `messages` in a chat request: roles, and content as a string or as parts. Parts and roles the
// contract has and this server does not serve yet are refused by name.
import { z } from "zod";
import { isEmptyArray, notBuiltYet, unsupportedIssue } from "../fields.ts";
import { expected, expectedVariant } from "../issues.ts";

const mediaTypes = ["image_url", "audio_url", "video_url", "input_audio", "file"] as const;
const roles = ["system", "developer", "user", "assistant", "tool"];

const textPart = z.strictObject({ type: z.literal("text"), text: z.string() });

const mediaPart = z.looseObject({ type: z.enum(mediaTypes) }).transform((part, context) => {
  context.addIssue(unsupportedIssue(`a content part of type "${part.type}"`));
  return z.NEVER;
});

const part = z.discriminatedUnion("type", [textPart, mediaPart], {
  error: expectedVariant("a content part", "type", ["text", ...mediaTypes]),
});

const content = z.union([z.string(), z.array(part)], { error: expected("a string or an array of content parts") });

const named = { content, name: z.string().nullish() };

const assistant = z.strictObject({
  role: z.literal("assistant"),
  content: content.nullish(),
  name: z.string().nullish(),
  // What our own answers carry comes back in the next request: null and empty are taken, and a refusal is beside the point:
  // the text that was refused is the content.
  refusal: z.string().nullish(),
  tool_calls: notBuiltYet("calling tools", isEmptyArray),
  function_call: notBuiltYet("calling functions"),
  audio: notBuiltYet("audio"),
  annotations: notBuiltYet("an annotation", isEmptyArray),
  reasoning_content: notBuiltYet("reasoning in a message", (value) => value === ""),
  reasoning: notBuiltYet("reasoning in a message", (value) => value === ""),
});

const tool = z.looseObject({ role: z.literal("tool") }).transform((_message, context) => {
  context.addIssue(unsupportedIssue('a message of role "tool"', "role"));
  return z.NEVER;
});

const message = z.discriminatedUnion(
  "role",
  [
    z.strictObject({ role: z.literal("system"), ...named }),
    z.strictObject({ role: z.literal("developer"), ...named }),
    z.strictObject({ role: z.literal("user"), ...named }),
    assistant,
    tool,
  ],
  { error: expectedVariant("a message object", "role", roles) },
);

export const messagesSchema = z.union([z.string().min(1), z.array(message).min(1)], {
  error: expected("a string or an array of messages"),
});

export type WireMessage = Exclude<z.output<typeof messagesSchema>, string>[number];
