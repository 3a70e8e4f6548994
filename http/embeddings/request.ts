// Request of POST /v1/embeddings: its schema and its translation to an EmbedRequest.
import { z } from "zod";
import type { EmbedInputs } from "../../actors/api/inference.ts";
import { expected } from "../issues.ts";
import type { AskedEmbeddings } from "../shared/answer/send-embeddings.ts";
import { dimensions, inputType, MAX_INPUTS, packedTexts, packedTokens } from "../shared/fields/embed-inputs.ts";
import { commonFields } from "../shared/fields/fields.ts";

const text = z.string().min(1);
// No maximum, because the text worker checks that the token is in the vocabulary.
const token = z.int32().min(0);
const entry = z.union([token, text, z.array(token).min(1)], {
  error: expected("a text, a token or an array of tokens"),
});

const input = z
  .union([text, z.array(entry).min(1)], {
    error: expected("a text, an array of texts, an array of tokens or an array of such arrays"),
  })
  .superRefine((value, context) => {
    if (typeof value === "string") return;
    const kind = typeof value[0];
    if (value.some((some) => typeof some !== kind)) {
      context.addIssue({ code: "custom", message: "expected texts, tokens or arrays of tokens, got some of each" });
    } else if (kind !== "number" && value.length > MAX_INPUTS) {
      context.addIssue({ code: "custom", message: `expected at most ${MAX_INPUTS} inputs, got ${value.length}` });
    }
  });

const { model, truncate_sequence, priority, user } = commonFields;

export const embeddingRequestSchema = z.strictObject({
  model,
  input: input.meta({ description: "A text, a list of texts, the tokens of one text, or a list of token lists." }),
  encoding_format: z
    .enum(["float", "base64"])
    .nullish()
    .meta({ description: "Encoding of the vectors.", default: "float" }),
  dimensions,
  input_type: inputType,
  truncate_sequence,
  priority,
  user,
});

type EmbeddingRequestBody = z.output<typeof embeddingRequestSchema>;

export function askedEmbeddings(body: EmbeddingRequestBody): AskedEmbeddings {
  return {
    inputs: packedInputs(body.input),
    truncateInputs: body.truncate_sequence ?? false,
    priority: body.priority ?? 0,
    takesTokenVectors: true,
    ...(body.dimensions != null && { dimensions: body.dimensions }),
    ...(body.input_type != null && { inputType: body.input_type }),
  };
}

function packedInputs(given: EmbeddingRequestBody["input"]): EmbedInputs {
  if (typeof given === "string") return packedTexts([given]);
  // The schema guarantees that all inputs have the same type.
  if (typeof given[0] === "string") return packedTexts(given as string[]);
  return packedTokens(typeof given[0] === "number" ? [given as number[]] : (given as number[][]));
}
