// Errors of the messages protocol: the body, the error types, and the message by which clients recognise a prompt that is too
// long. The exchange uses them for failed responses, stream.ts for failed streams.
import { z } from "zod";
import { type ContextLengths, type ErrorRecord, errorCodes } from "../../runtime/errors.ts";
import { type ErrorFormat, statusOf } from "../errors.ts";

const errorTypes = [
  "invalid_request_error",
  "authentication_error",
  "not_found_error",
  "request_too_large",
  "rate_limit_error",
  "api_error",
  "overloaded_error",
] as const;

/** Name of the field for the reasoning budget in errors thrown by code that all protocols share. */
const OUR_BUDGET = "reasoning_budget";
/** Name of this field in the messages protocol. */
const THEIR_BUDGET = "thinking.budget_tokens";

/**
 * Error code for a request with the field `thread`, which the server rejects. Tool runners of client libraries react by sending
 * the whole conversation without this field.
 */
const THREAD_REFUSED = "thread_unsupported_request";

type ErrorType = (typeof errorTypes)[number];

const typesByStatus: Readonly<Record<number, ErrorType>> = {
  401: "authentication_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  500: "api_error",
  503: "overloaded_error",
};

const schema = z
  .strictObject({
    type: z.literal("error"),
    error: z.strictObject({
      type: z.enum(errorTypes),
      message: z.string().meta({ description: "What was expected, what was received, and what to do." }),
      details: z.strictObject({
        error_code: z.enum([...errorCodes, THREAD_REFUSED]),
        param: z.string().nullable().meta({ description: "The invalid field." }),
        unsupported: z
          .array(z.string())
          .optional()
          .meta({ description: `With ${THREAD_REFUSED}: the unsupported features.` }),
      }),
    }),
    request_id: z.string(),
  })
  .meta({ id: "MessagesError" });

function body({ code, message: text, param, lengths }: ErrorRecord, requestId: string): string {
  const words = lengths === undefined ? text : tooLong(lengths);
  const type = typesByStatus[statusOf(code)] ?? "invalid_request_error";
  const isBudget = param === OUR_BUDGET;
  const message = isBudget ? words.replaceAll(OUR_BUDGET, THEIR_BUDGET) : words;
  const details =
    code === "unsupported" && param === "thread"
      ? { error_code: THREAD_REFUSED, param, unsupported: [param] }
      : { error_code: code, param: isBudget ? THEIR_BUDGET : (param ?? null) };
  return JSON.stringify({ type: "error", error: { type, message, details }, request_id: requestId });
}

/**
 * Returns the error message for a prompt, or a prompt plus `max_tokens`, that exceeds the context. Clients parse the message:
 * for a long prompt they shorten the conversation, otherwise they reduce `max_tokens`.
 */
function tooLong({ limit, prompt, output }: ContextLengths): string {
  const room = limit - (output ?? 1);
  if (prompt > limit || output === null) {
    return `prompt is too long: ${prompt} tokens > ${prompt > limit ? limit : room} maximum`;
  }
  const sum = `${prompt} + ${output} > ${limit}`;
  return `input length and \`max_tokens\` exceed context limit: ${sum}, decrease input length or \`max_tokens\` and try again`;
}

export const messagesErrors: ErrorFormat = { statusOf, body, schema, requestIdHeader: "request-id" };
