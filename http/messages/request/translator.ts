// Translates the bodies of POST /v1/messages and POST /v1/messages/count_tokens to generation requests.
import { askedTranslator } from "../../shared/translation.ts";
import { askedRequest, countRequestSchema, messagesRequestSchema } from "./request.ts";

export const messagesTranslator = askedTranslator(
  "messages",
  messagesRequestSchema,
  (body) => ({ model: body.model, isStreamed: body.stream ?? false }),
  askedRequest,
);

export const countTranslator = askedTranslator(
  "count_tokens",
  countRequestSchema,
  (body) => ({ model: body.model }),
  askedRequest,
);
