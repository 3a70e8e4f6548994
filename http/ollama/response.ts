// Responses of /api/chat and /api/generate: functions and schemas for both complete bodies and streams.
import { z } from "zod";
import type { FinishReason, Usage } from "../../engines/generation.ts";
import type { Answer } from "../shared/answer/answer.ts";
import { tokenLogprobSchema, wireTokenLogprobs } from "../shared/answer/logprobs.ts";

const NS_PER_SECOND = 1e9;

const count = z.int().min(0);
const duration = z.int().min(0).meta({ description: "Nanoseconds." });

const callSchema = z.strictObject({
  id: z.string(),
  function: z.strictObject({ index: z.int(), name: z.string(), arguments: z.record(z.string(), z.unknown()) }),
});

const metrics = {
  total_duration: duration,
  load_duration: duration.meta({
    description: "Nanoseconds before the prompt was read, for example to load the model.",
  }),
  prompt_eval_count: count.meta({ description: "Tokens of the prompt, cached ones included." }),
  prompt_eval_duration: duration,
  eval_count: count.meta({ description: "Tokens of the output." }),
  eval_duration: duration,
};

const common = {
  model: z.string().meta({ description: "The model as the request names it." }),
  created_at: z.string().meta({ description: "Time in RFC 3339." }),
  done: z.boolean(),
  done_reason: z.enum(["stop", "length", "cancelled", "load", "unload"]).optional(),
  logprobs: z.array(tokenLogprobSchema).optional(),
};

const done = z.object(metrics).partial().shape;

const messageSchema = z.strictObject({
  role: z.literal("assistant"),
  content: z.string(),
  thinking: z.string().optional(),
  tool_calls: z.array(callSchema).optional().meta({ description: "Whole calls." }),
});

export const chatResponseSchema = z
  .strictObject({ ...common, message: messageSchema, ...done })
  .meta({ id: "OllamaChatResponse" });

export const generateResponseSchema = z
  .strictObject({ ...common, response: z.string(), thinking: z.string().optional(), ...done })
  .meta({ id: "OllamaGenerateResponse" });

export type WireToolCall = z.output<typeof callSchema>;

/** Output of the model: the complete output in a body, or the new output in a line of a stream. */
export interface Said {
  readonly content: string;
  readonly thinking?: string;
  readonly calls?: readonly WireToolCall[];
}

/** Returns the output of the model as response fields of one endpoint. */
export type Shape = (said: Said) => object;

export const chatShape: Shape = ({ content, thinking, calls = [] }) => ({
  message: {
    role: "assistant",
    content,
    ...(thinking ? { thinking } : {}),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  },
});

export const generateShape: Shape = ({ content, thinking }) => ({
  response: content,
  ...(thinking ? { thinking } : {}),
});

/** Returns the fields that begin every response object: model name and creation time. */
export function head(model: string): { readonly model: string; readonly created_at: string } {
  return { model, created_at: new Date().toISOString() };
}

/** Returns the fields that end a response. `receivedAt`: arrival time of the request, in milliseconds since 1970. */
export function finalFields(reason: FinishReason, usage: Usage, receivedAt: number): object {
  const loadSeconds = Math.max(usage.timeline.startedAt - receivedAt, 0) / 1000;
  return {
    done: true,
    done_reason: reason === "tool_calls" ? "stop" : reason,
    total_duration: nanoseconds(loadSeconds + usage.totalSeconds),
    load_duration: nanoseconds(loadSeconds),
    prompt_eval_count: usage.promptTokens,
    prompt_eval_duration: nanoseconds(usage.promptSeconds),
    eval_count: usage.completionTokens,
    eval_duration: nanoseconds(usage.completionSeconds),
  };
}

/** Builds the body of a response that is not streamed. */
export function wholeBody(model: string, shape: Shape, answer: Answer, receivedAt: number): object {
  const [choice] = answer.choices;
  const { tokens } = answer;
  if (choice === undefined) throw new Error("an answer without a choice");
  return {
    ...head(model),
    ...shape(saidBy(choice)),
    ...(tokens === null ? {} : { logprobs: wireTokenLogprobs(tokens, choice.logprobs) }),
    ...finalFields(choice.finishReason, answer.usage, receivedAt),
  };
}

/** Returns a tool call with its arguments as an object; null if the arguments are not a JSON object. */
export function wireCall(index: number, id: string, name: string, text: string): WireToolCall | null {
  const values = objectIn(text);
  return values === null ? null : { id, function: { index, name, arguments: values } };
}

/** Collects the output of a choice. Omits tool calls truncated by the token limit, because their arguments are incomplete. */
function saidBy({ parts, reasoning }: Answer["choices"][number]): Said {
  let content = "";
  const calls: WireToolCall[] = [];
  for (const part of parts) {
    if (part.kind === "text") content += part.text;
    if (part.kind !== "call" || part.isCut) continue;
    const call = wireCall(calls.length, part.id, part.name, part.text);
    if (call === null) content += part.text;
    else calls.push(call);
  }
  return { content, thinking: reasoning, calls };
}

function objectIn(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : null;
  } catch {
    return null;
  }
}

export function nanoseconds(seconds: number): number {
  return Math.round(seconds * NS_PER_SECOND);
}
