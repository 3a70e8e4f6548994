// How the bodies of POST /v1/completions are read.
import { askedTranslator } from "../shared/translation.ts";
import { askedRequest, completionRequestSchema } from "./request.ts";

const encoder = new TextEncoder();

const translator = askedTranslator(
  "completions",
  completionRequestSchema,
  (body) => ({
    model: body.model,
    adapter: body.adapter,
    /** What each text begins with: JSON in UTF-8, which keeps halves of characters. */
    prefix: encoder.encode(JSON.stringify(body.echo ? body.prompt : "")),
    wantsLogprobs: typeof body.logprobs === "number",
  }),
  askedRequest,
);

export const completionTranslator: typeof translator = {
  ...translator,
  pack(translated) {
    const { value, transfer } = translator.pack(translated);
    return { value, transfer: [...(transfer ?? []), translated.facts.prefix.buffer as ArrayBuffer] };
  },
};
