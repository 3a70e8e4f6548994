// Translators from the bodies of POST /v1/messages and POST /v1/messages/count_tokens to generation requests.
import { runTranslator } from "../../shared/translation.ts";
import { askedRun, countRequestSchema, messagesRequestSchema } from "./request.ts";

export const messagesTranslator = runTranslator(
  "messages",
  messagesRequestSchema,
  (body) => ({ model: body.model, isStreamed: body.stream ?? false }),
  askedRun,
);

export const countTranslator = runTranslator(
  "count_tokens",
  countRequestSchema,
  (body) => ({ model: body.model }),
  askedRun,
);
