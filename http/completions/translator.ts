// How the bodies of POST /v1/completions are read.
import { askedTranslator } from "../translation.ts";
import { askedRequest, completionRequestSchema } from "./request.ts";

export const completionTranslator = askedTranslator(
  "completions",
  completionRequestSchema,
  (body) => ({
    model: body.model,
    adapter: body.adapter,
    /** What each text begins with. */
    prefix: body.echo ? body.prompt : "",
    wantsLogprobs: typeof body.logprobs === "number",
  }),
  askedRequest,
);
