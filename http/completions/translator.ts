// Translator from the body of POST /v1/completions to generation requests.
import type { z } from "zod";
import { movedWith, sealContent } from "../../actors/api/sealed-content.ts";
import type { GenerateRequest, Prompt } from "../../engines/generation.ts";
import { acceptedBody } from "../shared/accepted-body.ts";
import type { adapterField } from "../shared/fields/adapter-field.ts";
import { type AskedTranslation, type BodyTranslator, sealed } from "../shared/translation.ts";
import type { ShownOfTokens } from "./logprobs.ts";
import { askedRequest, completionRequestSchema, promptsOf } from "./request.ts";

const encoder = new TextEncoder();

interface CompletionFacts {
  readonly model: string | null | undefined;
  readonly adapter: z.output<typeof adapterField>;
  /**
   * Prompts that `echo` repeats before the text of their choices: a JSON array of strings and lists of token ids, in UTF-8;
   * empty without `echo`. JSON escapes preserve lone surrogates, which UTF-8 cannot encode.
   */
  readonly echoes: Uint8Array;
  readonly shows: ShownOfTokens;
  readonly isStreamed: boolean;
  readonly includesUsage: boolean;
}

export interface CompletionTranslation extends AskedTranslation<CompletionFacts> {
  /** All prompts except the first. `asked` contains the first prompt and all other request fields. */
  readonly others: readonly GenerateRequest["prompt"][];
}

export const completionTranslator: BodyTranslator<CompletionTranslation> = {
  name: "completions",
  translate(value, _parameters, unknownFields) {
    const { body, ignored } = acceptedBody(completionRequestSchema, value, unknownFields);
    const prompts = promptsOf(body);
    const facts: CompletionFacts = {
      model: body.model,
      adapter: body.adapter,
      echoes: encoder.encode(JSON.stringify(body.echo ? prompts.map(echoOf) : [])),
      shows: {
        logprobs: typeof body.logprobs === "number",
        ids: body.return_token_ids ?? false,
        namesAsIds: body.return_tokens_as_token_ids ?? false,
      },
      isStreamed: body.stream ?? false,
      includesUsage: body.stream_options?.include_usage ?? false,
    };
    return { model: body.model, ignored, facts, asked: askedRequest(body), others: prompts.slice(1) };
  },
  pack(translated) {
    const { grammar, tools } = translated.asked;
    const asked = sealed(translated.asked);
    const others = translated.others.map((prompt) =>
      prompt.kind === "sealed" ? prompt : sealContent({ prompt, grammar, tools }),
    );
    const prompts = [asked, ...others.map((prompt) => ({ prompt }))];
    const echoes = translated.facts.echoes.buffer as ArrayBuffer;
    return { value: { ...translated, asked, others }, transfer: [echoes, ...prompts.flatMap(movedWith)] };
  },
};

function echoOf(prompt: Prompt): string | number[] {
  if (prompt.kind === "tokens") return [...prompt.tokens];
  return prompt.kind === "text" ? prompt.text : "";
}
