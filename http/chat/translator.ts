// Translator from the body of POST /v1/chat/completions to a generation request.
import { runTranslator } from "../shared/translation.ts";
import { askedRun, chatRequestSchema } from "./request.ts";

export const chatTranslator = runTranslator(
  "chat",
  chatRequestSchema,
  (body) => ({
    model: body.model,
    adapter: body.adapter,
    isStreamed: body.stream ?? false,
    includesUsage: body.stream_options?.include_usage ?? false,
    wantsLogprobs: body.logprobs ?? false,
  }),
  askedRun,
);
