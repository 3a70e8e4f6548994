// Owns how the log probabilities of tokens are written, as OpenAI's protocols have them. Hot path where they are asked for: a
// stream writes one a token.
import { z } from "zod";
import type { ChoiceLogprob, TokenLogprob } from "../engines/chat.ts";

const alternativeSchema = z.strictObject({
  token: z.string(),
  logprob: z.number().meta({ description: "-9999 for never" }),
  bytes: z.array(z.int().min(0).max(255)).meta({ description: "UTF-8; a token may hold part of a character" }),
});

export const tokenLogprobSchema = alternativeSchema.extend({ top_logprobs: z.array(alternativeSchema) });

export type WireTokenLogprob = z.output<typeof tokenLogprobSchema>;

export function wireTokenLogprobs(logprobs: readonly ChoiceLogprob[]): WireTokenLogprob[] {
  return logprobs.map(wireChosen);
}

/** A log probability as JSON can carry it: OpenAI writes -9999 for "never". */
export function wireLogprob(logprob: number): number {
  return Number.isFinite(logprob) ? logprob : -9999;
}

// Bytes are not copied: schemas know no read-only lists.
function wireChosen({ token, logprob, bytes, top }: ChoiceLogprob): WireTokenLogprob {
  return {
    token,
    logprob: wireLogprob(logprob),
    bytes: bytes as number[],
    top_logprobs: top.map(wireAlternative),
  };
}

function wireAlternative({ token, logprob, bytes }: TokenLogprob): z.output<typeof alternativeSchema> {
  return { token, logprob: wireLogprob(logprob), bytes: bytes as number[] };
}
