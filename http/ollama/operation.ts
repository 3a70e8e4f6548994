// OpenAPI descriptions of the Ollama protocol, and the schemas of its model entries.
import { z } from "zod";
import { lineStreamHeaders } from "../exchange.ts";
import { jsonAnswer, modelErrors, type Operation } from "../operation.ts";
import { commonFields, ignored } from "../shared/fields/fields.ts";
import { chatRequestSchema } from "./chat.ts";
import {
  embedRequestSchema,
  embedResponseSchema,
  oneEmbeddingRequestSchema,
  oneEmbeddingResponseSchema,
} from "./embed.ts";
import { ollamaErrors } from "./errors.ts";
import { generateRequestSchema } from "./generate.ts";
import { chatResponseSchema, generateResponseSchema } from "./response.ts";

/**
 * Value of `expires_at` in GET /api/ps. It is far in the future, because the server cannot know when a model will be unloaded.
 */
export const NEVER = "9999-12-31T23:59:59Z";

const details = z
  .strictObject({
    parent_model: z.string().meta({ description: "Base model of an adapter; else empty." }),
    format: z.literal("gguf"),
    family: z.string().meta({ description: "Architecture; empty until the first load." }),
    families: z.array(z.string()),
    parameter_size: z.string().meta({ description: "For example 8.0B; empty until the first load." }),
    quantization_level: z.string().meta({ description: "Number type of most weights; empty if unknown." }),
  })
  .meta({ id: "OllamaModelDetails" });

const listed = {
  name: z.string().meta({ description: "Name of the model in requests." }),
  model: z.string(),
  size: z.int().min(0).meta({ description: "Bytes of the weights; 0 until the first load." }),
  digest: z.string().meta({
    description:
      "SHA-256 of the metadata of the model's file, or the generation of an adapter; zeros until the first load.",
  }),
  details,
};

const tag = z.strictObject({ ...listed, modified_at: z.string().meta({ description: "Time in RFC 3339." }) });

export const tagsSchema = z.strictObject({ models: z.array(tag) }).meta({ id: "OllamaModels" });

const runningModel = z.strictObject({
  ...listed,
  expires_at: z.string().meta({ description: `Always ${NEVER}: models have no time of their own.` }),
  context_length: z.int().min(0).meta({ description: "Tokens of prompt and output together." }),
});

export const runningSchema = z.strictObject({ models: z.array(runningModel) }).meta({ id: "OllamaRunningModels" });

export const showRequestSchema = z.strictObject({
  model: commonFields.model,
  name: z.string().nullish().meta({ description: "Older name of model." }),
  verbose: ignored(z.boolean(), "vocabularies are not shown"),
  system: ignored(z.string(), "models have no system message"),
  template: ignored(z.string(), "the chat template is the model's own"),
  options: ignored(z.record(z.string(), z.unknown()), "options are sent with each generation"),
});

export const showSchema = z
  .strictObject({
    parameters: z.string().meta({ description: "Option num_ctx: tokens of prompt and output together." }),
    details,
    model_info: z.record(z.string(), z.union([z.string(), z.number()])).meta({
      description: "Keys of the model's file; `….context_length` is the length that the server allows.",
    }),
    capabilities: z
      .array(z.enum(["completion", "tools", "thinking", "embedding"]))
      .meta({ description: "Empty until the model's first load." }),
    modified_at: z.string(),
  })
  .meta({ id: "OllamaModel" });

const versionSchema = z
  .strictObject({ version: z.string().meta({ description: "Version of Ollama whose protocol this is." }) })
  .meta({ id: "OllamaVersion" });

/** Errors of generation requests, including requests without a prompt, which load or unload a model. */
const generationErrors = [...modelErrors, "model_state_conflict", "config_invalid"] as const;

const withoutText = (field: string): string =>
  `Without ${field} the model is loaded, or unloaded with \`keep_alive: 0\`. Bodies need no content type, except from web pages.`;

export const chatOperation: Operation = {
  id: "ollamaChat",
  tag: "Ollama",
  summary: "Generate the next message of a chat",
  description: withoutText("messages"),
  body: chatRequestSchema,
  answers: generated(chatResponseSchema),
  errors: generationErrors,
};

export const generateOperation: Operation = {
  id: "ollamaGenerate",
  tag: "Ollama",
  summary: "Generate a response to a prompt",
  description: `Applies the model's chat template to the prompt, unless raw is true. ${withoutText("a prompt")}`,
  body: generateRequestSchema,
  answers: generated(generateResponseSchema),
  errors: generationErrors,
};

export const embedOperation: Operation = {
  id: "ollamaEmbed",
  tag: "Ollama",
  summary: "Create embeddings",
  body: embedRequestSchema,
  answers: jsonAnswer(embedResponseSchema, "One vector per input, in order"),
  errors: modelErrors,
};

export const oneEmbeddingOperation: Operation = {
  id: "ollamaEmbedding",
  tag: "Ollama",
  summary: "Create an embedding (older form)",
  body: oneEmbeddingRequestSchema,
  answers: jsonAnswer(oneEmbeddingResponseSchema, "The vector"),
  errors: modelErrors,
};

export const tagsOperation: Operation = {
  id: "ollamaTags",
  tag: "Ollama",
  summary: "List the models",
  description: "All models in configured order, each followed by its adapters.",
  answers: jsonAnswer(tagsSchema, "The models"),
  errors: [],
};

export const runningOperation: Operation = {
  id: "ollamaRunning",
  tag: "Ollama",
  summary: "List the loaded models",
  answers: jsonAnswer(runningSchema, "The loaded models"),
  errors: [],
};

export const showOperation: Operation = {
  id: "ollamaShow",
  tag: "Ollama",
  summary: "Show a model",
  body: showRequestSchema,
  answers: jsonAnswer(showSchema, "The model"),
  errors: ["model_not_found"],
};

export const versionOperation: Operation = {
  id: "ollamaVersion",
  tag: "Ollama",
  summary: "Show the version of the protocol",
  description: "The version of Ollama that these routes follow; GET /v1/system/info has the version of this server.",
  answers: jsonAnswer(versionSchema, "The version"),
  errors: [],
};

function generated(schema: z.ZodType): Operation["answers"] {
  const description =
    "By default lines of JSON; the last has `done: true`. A failure after the first line is a line with an error.";
  return {
    200: [
      { contentType: "application/json", schema, description: "With stream: false, the whole response" },
      { contentType: lineStreamHeaders["content-type"], schema: z.union([schema, ollamaErrors.schema]), description },
    ],
  };
}
