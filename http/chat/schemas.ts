// Response schemas of chat completions: the complete body, and the chunks of a stream. The API document and the types of
// response.ts are derived from them; stream.ts writes chunks that match them.
import { z } from "zod";
import { agentAnswerFields } from "../shared/agent/wire.ts";
import { adapterGeneration } from "../shared/answer/adapter-generation.ts";
import { tokenLogprobSchema } from "../shared/answer/logprobs.ts";
import { finishReasonSchema, usageSchema } from "../shared/answer/usage.ts";

export const logprobsSchema = z
  .strictObject({
    content: z.array(tokenLogprobSchema),
    refusal: z.null(),
  })
  .meta({ id: "ChatLogprobs" });

const refusal = z.string().meta({ description: "Why the content does not match the requested format." });
const reasoning = z.string().meta({ description: "Reasoning before the content." });

const toolCall = z.strictObject({
  id: z.string(),
  type: z.literal("function"),
  function: z.strictObject({ name: z.string(), arguments: z.string().meta({ description: "JSON text." }) }),
});

const head = {
  id: z.string(),
  created: z.int().meta({ description: "Unix time in seconds." }),
  model: z.string(),
  system_fingerprint: z.literal("local"),
  adapter_generation: adapterGeneration,
};

const index = z.int().min(0);

export const annotationSchema = z
  .strictObject({
    type: z.literal("url_citation"),
    url_citation: z.strictObject({ start_index: index, end_index: index, url: z.string(), title: z.string() }),
  })
  .meta({ id: "ChatUrlCitation" });

const annotations = z
  .array(annotationSchema)
  .readonly()
  .optional()
  .meta({ description: "Pages of web searches that the content names; absent if there are none." });

const completionChoice = z.strictObject({
  index,
  message: z.strictObject({
    role: z.literal("assistant"),
    content: z.string().nullable().meta({ description: "null: the message has only tool calls." }),
    refusal: refusal.nullable(),
    tool_calls: z.array(toolCall).min(1).optional(),
    annotations,
    reasoning_content: reasoning.optional(),
  }),
  logprobs: logprobsSchema.nullable(),
  finish_reason: finishReasonSchema,
});

export const chatCompletionSchema = z
  .strictObject({
    ...head,
    object: z.literal("chat.completion"),
    choices: z.array(completionChoice).min(1),
    usage: usageSchema,
    ...agentAnswerFields,
  })
  .meta({ id: "ChatCompletion" });

export type WireChatCompletion = z.output<typeof chatCompletionSchema>;
export type WireChoice = z.output<typeof completionChoice>;
export type WireAnnotation = z.output<typeof annotationSchema>;
export type WireLogprobs = z.output<typeof logprobsSchema>;

/** Part of a tool call. The first delta of a call has its id and name; later deltas have parts of the arguments. */
const callDelta = z.strictObject({
  index,
  id: z.string().optional(),
  type: z.literal("function").optional(),
  function: z.strictObject({ name: z.string().optional(), arguments: z.string() }),
});

const chunkChoice = z.strictObject({
  index,
  delta: z.strictObject({
    role: z.literal("assistant").optional(),
    content: z.string().optional(),
    refusal: refusal.optional(),
    tool_calls: z.array(callDelta).min(1).optional(),
    annotations,
    reasoning_content: reasoning.optional(),
  }),
  logprobs: logprobsSchema.nullable(),
  finish_reason: finishReasonSchema.nullable(),
});

export const chatChunkSchema = z
  .strictObject({
    ...head,
    object: z.literal("chat.completion.chunk"),
    choices: z
      .array(chunkChoice)
      .meta({ description: "One choice; none in the usage chunk of stream_options.include_usage." }),
    session_id: agentAnswerFields.session_id,
    usage: usageSchema
      .nullable()
      .optional()
      .meta({ description: "On the last chunk; on earlier ones null with stream_options.include_usage, else absent." }),
  })
  .meta({ id: "ChatCompletionChunk" });
