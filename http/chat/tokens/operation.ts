// OpenAPI descriptions of POST /tokenize and POST /detokenize, and the schemas of their responses.
import { z } from "zod";
import { jsonAnswer, modelErrors, type Operation } from "../../operation.ts";
import { detokenizeRequestSchema, tokenizeRequestSchema } from "./request.ts";

const token = z.int().min(0);
const piece = z.union([z.string(), z.array(z.int().min(0).max(255))]);

export const tokensSchema = z
  .union([
    z.strictObject({
      tokens: z.union([z.array(token), z.array(z.strictObject({ id: token, piece }))]).meta({
        description: "Tokens, or with with_pieces tokens with their texts; bytes if they are not UTF-8.",
      }),
    }),
    z.strictObject({
      count: z.int().min(0),
      max_model_len: z.int().min(1).meta({ description: "Maximum number of tokens of prompt and output." }),
      tokens: z.array(token),
      token_strs: z.array(z.string()).nullable(),
    }),
  ])
  .meta({ id: "Tokens" });

export const tokenTextSchema = z
  .strictObject({
    content: z.string().meta({ description: "Text of the tokens, with the names of control tokens." }),
    prompt: z.string().meta({ description: "The same text." }),
  })
  .meta({ id: "TokenText" });

export const tokenizeOperation: Operation = {
  id: "tokenize",
  tag: "Models",
  summary: "Convert text or a chat to tokens",
  description: "Takes one of content, prompt and messages. Messages are rendered with the model's chat template.",
  body: tokenizeRequestSchema,
  answers: jsonAnswer(tokensSchema, "The tokens"),
  errors: modelErrors,
};

export const detokenizeOperation: Operation = {
  id: "detokenize",
  tag: "Models",
  summary: "Convert tokens to text",
  body: detokenizeRequestSchema,
  answers: jsonAnswer(tokenTextSchema, "The text"),
  errors: modelErrors,
};
