// Translates the body of POST /v1/completions to a generation request.
import { askedTranslator } from "../shared/translation.ts";
import { askedRequest, completionRequestSchema } from "./request.ts";

const encoder = new TextEncoder();

const translator = askedTranslator(
  "completions",
  completionRequestSchema,
  (body) => ({
    model: body.model,
    adapter: body.adapter,
    /** Prefix of each text, as a JSON string in UTF-8. The escapes of JSON preserve lone surrogates. */
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
