// OpenAPI description of the model list and of a single model, and the schema of a model entry.
import { z } from "zod";
import { schedulerNames } from "../../engines/diffusion/schedulers/config.ts";
import { jsonAnswer, type Operation } from "../operation.ts";
import { modelInfoSchema, modelPageQuery, modelPageSchema } from "./messages-form.ts";

const defaultsSchema = z
  .strictObject({
    temperature: z.number(),
    top_k: z.int().meta({ description: "0: all tokens." }),
    top_p: z.number(),
    min_p: z.number(),
    repetition_penalty: z.number(),
    presence_penalty: z.number(),
    frequency_penalty: z.number(),
    max_tokens: z.int().nullable().meta({ description: "null: the rest of the context." }),
  })
  .meta({ id: "ModelDefaults" });

const requantizationSchema = z
  .strictObject({
    ggml_type: z.string().meta({ description: "Quantization level that was asked for." }),
    status: z.enum(["converting", "loading", "done", "failed"]),
    progress: z.number().meta({ description: "Fraction of the conversion, 0..1." }),
    error: z.string().optional().meta({ description: "Why it failed; the model is unchanged then." }),
  })
  .meta({ id: "Requantization" });

export const modelSchema = z
  .strictObject({
    id: z.string().meta({ description: 'Name of the model in requests; the entry "default" is the default model.' }),
    object: z.literal("model"),
    created: z.int().meta({ description: "Unix time in seconds." }),
    owned_by: z.literal("local"),
    root: z.string().optional().meta({ description: "Alias of the adapter, for a model with an adapter." }),
    parent: z.string().optional().meta({ description: "Id of the base model, for a model with an adapter." }),
    adapter_generation: z
      .string()
      .optional()
      .meta({ description: "Current generation of the adapter, for a model with an adapter." }),
    status: z.enum(["loaded", "unloaded", "reloading"]),
    load_error: z
      .string()
      .optional()
      .meta({ description: "Why the last load failed, such as a library to install; absent if it did not." }),
    speech: z
      .strictObject({
        task: z.enum(["speak", "transcribe"]),
        engine: z.enum(["piper", "kokoro", "espeak", "whisper"]),
        sample_rate: z.int().optional().meta({ description: "Absent until the model's first load." }),
        voices: z.int().optional().meta({ description: "Number of voices, see GET /v1/audio/voices." }),
        languages: z.array(z.string()).optional().meta({ description: "Languages that the model transcribes." }),
      })
      .optional()
      .meta({ id: "ModelSpeech", description: "Facts of a speech model; absent for other models." }),
    diffusion: z
      .strictObject({
        native_size: z.int().meta({ description: "Width and height of the training, in pixels." }),
        size_multiple: z.int().meta({ description: "Widths and heights are multiples of this." }),
        max_pixels: z.int(),
        max_steps: z.int(),
        scheduler: z.enum(schedulerNames),
        steps: z.int(),
        guidance_scale: z.number(),
      })
      .partial()
      .optional()
      .meta({
        id: "ModelDiffusion",
        description:
          "Limits and defaults of images; empty until the model's first load, absent for models that make no images.",
      }),
    max_model_len: z
      .int()
      .optional()
      .meta({ description: "Maximum tokens of prompt and output together; absent until the model's first load." }),
    trained_context: z
      .int()
      .optional()
      .meta({ description: "Tokens for which the model was trained; absent until the model's first load." }),
    parameter_count: z.int().optional().meta({ description: "Absent until the model's first load." }),
    weight_bytes: z
      .int()
      .optional()
      .meta({ description: "Size of the weights in the model's file; absent until the first load." }),
    kv_cache_bytes: z
      .int()
      .optional()
      .meta({ description: "Size of the KV cache of all sequences together; absent until the first load." }),
    load_progress: z
      .number()
      .optional()
      .meta({ description: "Fraction of the load in progress, 0..1; absent unless the model is being loaded." }),
    defaults: defaultsSchema.optional().meta({
      description: "Values of the fields that a request leaves out; absent for a model that does not generate text.",
    }),
    quantization: z
      .string()
      .optional()
      .meta({ description: "Number type of most weights, for example Q4_K; absent until the model's first load." }),
    requantization: requantizationSchema
      .optional()
      .meta({ description: "The last change of the quantization (`POST /re_isq`); absent if there was none." }),
    file_name: z.string().optional().meta({
      description:
        "Name of the file that GET /v1/models/{model}/file returns; absent without `share_model_files`, and for a model in several files.",
    }),
    downloaded: z.boolean().optional().meta({
      description: "true if a client had the server download the model (`POST /api/pull`); else absent.",
    }),
    input_modalities: z
      .array(z.enum(["text", "image", "audio"]))
      .optional()
      .meta({ description: "Kinds of input; absent until the model's first load." }),
    tools_available: z.boolean().meta({ description: "Whether the model can call tools; false until its first load." }),
    mcp_tools_count: z
      .int()
      .optional()
      .meta({ description: "Number of tools of the connected MCP servers; absent on a server without `mcp_config`." }),
    mcp_servers_connected: z
      .int()
      .optional()
      .meta({ description: "Number of connected MCP servers; absent on a server without `mcp_config`." }),
  })
  .meta({ id: "Model" });

export const modelListSchema = z
  .strictObject({ object: z.literal("list"), data: z.array(modelSchema) })
  .meta({ id: "ModelList" });

export type WireModel = z.output<typeof modelSchema>;

const OTHER_FORM =
  "With the header anthropic-version (or alt-version) the response has the form of the messages protocol.";

export const listModelsOperation: Operation = {
  id: "listModels",
  tag: "Models",
  summary: "List the models",
  description: `The first entry is "default", the default model; then come all models in configured order, each followed by its adapters, which requests may also name as their model. ${OTHER_FORM}`,
  query: modelPageQuery,
  answers: jsonAnswer(z.union([modelListSchema, modelPageSchema]), "The models"),
  errors: [],
};

export const retrieveModelOperation: Operation = {
  id: "retrieveModel",
  tag: "Models",
  summary: "Show a model",
  description: OTHER_FORM,
  path: z.strictObject({
    model: z.string().meta({ description: "Id of a model, or of a model with an adapter; a slash is written as %2F." }),
  }),
  answers: jsonAnswer(z.union([modelSchema, modelInfoSchema]), "The model"),
  errors: ["model_not_found"],
};

export const modelFileOperation: Operation = {
  id: "modelFile",
  tag: "Models",
  summary: "Download the file of a model",
  description:
    "The GGUF file. The header x-file-bytes has its length, because the body is sent in pieces. Served only with `share_model_files`.",
  path: z.strictObject({ model: z.string().meta({ description: "Id of a model; a slash is written as %2F." }) }),
  answers: { 200: [{ contentType: "application/octet-stream", description: "The file" }] },
  errors: ["model_not_found", "unsupported", "not_found"],
};
