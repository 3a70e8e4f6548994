// POST /api/embed and the older POST /api/embeddings: schemas of the requests and responses, and the handlers.
import { z } from "zod";
import type { Embeddings } from "../../actors/api/inference.ts";
import type { RouteHandler } from "../context.ts";
import { expected } from "../issues.ts";
import { acceptedBody } from "../shared/accepted-body.ts";
import { gathered } from "../shared/answer/json-pieces.ts";
import { type AskedEmbeddings, sendEmbeddings } from "../shared/answer/send-embeddings.ts";
import { numberFragments } from "../shared/answer/vector-json.ts";
import { dimensions, MAX_INPUTS, packedTexts } from "../shared/fields/embed-inputs.ts";
import { commonFields, ignored } from "../shared/fields/fields.ts";
import { readRequest } from "../shared/read-request.ts";
import type { BodyTranslator, Translation } from "../shared/translation.ts";
import { keepAlive } from "./fields.ts";
import { namedModel } from "./named-model.ts";
import { nanoseconds } from "./response.ts";

const text = z.string().min(1);

const fields = {
  model: commonFields.model,
  options: ignored(z.record(z.string(), z.unknown()), "embeddings have no sampling parameters"),
  keep_alive: keepAlive,
};

export const embedRequestSchema = z.strictObject({
  ...fields,
  input: z
    .union([text, z.array(text).min(1).max(MAX_INPUTS)], { error: expected("a text or an array of texts") })
    .meta({ description: "A text, or a list of texts." }),
  truncate: z
    .boolean()
    .nullish()
    .meta({ description: "Truncate an input that exceeds the context instead of refusing it.", default: true }),
  dimensions,
});

export const embedResponseSchema = z
  .strictObject({
    model: z.string().meta({ description: "The model as the request names it." }),
    embeddings: z.array(z.array(z.number())).meta({ description: "A unit vector per input, in order." }),
    total_duration: z.int().min(0).meta({ description: "Nanoseconds." }),
    prompt_eval_count: z.int().min(0).meta({ description: "Tokens of all inputs." }),
  })
  .meta({ id: "OllamaEmbedResponse" });

export const oneEmbeddingRequestSchema = z.strictObject({ ...fields, prompt: text });

export const oneEmbeddingResponseSchema = z
  .strictObject({ embedding: z.array(z.number()).meta({ description: "A unit vector." }) })
  .meta({ id: "OllamaEmbedding" });

interface EmbedTranslation extends Translation {
  readonly asked: AskedEmbeddings;
}

export const embedTranslator = translator("ollama-embed", embedRequestSchema, ({ input, truncate, dimensions }) => ({
  inputs: packedTexts(typeof input === "string" ? [input] : input),
  truncateInputs: truncate ?? true,
  priority: 0,
  ...(dimensions != null && { dimensions }),
}));

export const oneEmbeddingTranslator = translator("ollama-embeddings", oneEmbeddingRequestSchema, ({ prompt }) => ({
  inputs: packedTexts([prompt]),
  truncateInputs: true,
  priority: 0,
}));

export const embed: RouteHandler = async (exchange, context) => {
  const { model: name, asked } = await readRequest(exchange, context, embedTranslator);
  const model = namedModel(exchange, context.inference, name);
  await sendEmbeddings(exchange, context, model, asked, (made) => {
    const last = { total_duration: nanoseconds(exchange.elapsedMs / 1000), prompt_eval_count: made.promptTokens };
    return gathered(listFragments(name ?? model.id, made, last));
  });
};

export const oneEmbedding: RouteHandler = async (exchange, context) => {
  const { model: name, asked } = await readRequest(exchange, context, oneEmbeddingTranslator);
  const model = namedModel(exchange, context.inference, name);
  await sendEmbeddings(exchange, context, model, asked, (made) => gathered(oneFragments(made)));
};

function translator<Schema extends z.ZodObject<typeof fields>>(
  name: string,
  schema: Schema,
  askedOf: (body: z.output<Schema>) => AskedEmbeddings,
): BodyTranslator<EmbedTranslation> {
  return {
    name,
    translate(value, _parameters, unknownFields) {
      const { body, ignored } = acceptedBody(schema, value, unknownFields);
      return { model: body.model, ignored, asked: askedOf(body) };
    },
    pack(translated) {
      const { values, ends } = translated.asked.inputs;
      return { value: translated, transfer: [values.buffer as ArrayBuffer, ends.buffer as ArrayBuffer] };
    },
  };
}

function* listFragments(model: string, { vectors }: Embeddings, last: object): Generator<string> {
  yield `{"model":${JSON.stringify(model)},"embeddings":[`;
  for (const [index, vector] of vectors.entries()) {
    if (index > 0) yield ",";
    yield* numberFragments(vector);
  }
  yield `],${JSON.stringify(last).slice(1)}`;
}

function* oneFragments({ vectors: [vector = new Float32Array(0)] }: Embeddings): Generator<string> {
  yield '{"embedding":';
  yield* numberFragments(vector);
  yield "}";
}
