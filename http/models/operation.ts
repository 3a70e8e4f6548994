// Owns what the API document says of the list of models and of one of them, with the schema of an entry.
import { z } from "zod";
import { jsonAnswer, type Operation } from "../operation.ts";

export const modelSchema = z
  .strictObject({
    id: z.string().meta({ description: 'What requests name it by; the entry "default" stands for the default model' }),
    object: z.literal("model"),
    created: z.int().meta({ description: "Unix seconds" }),
    owned_by: z.literal("local"),
    root: z.string().optional().meta({ description: "Of a model with an adapter: the adapter's name" }),
    parent: z.string().optional().meta({ description: "Of one with an adapter: the id of the model itself" }),
    adapter_generation: z.string().optional().meta({ description: "Of one with an adapter: its generation now" }),
    status: z.enum(["loaded", "unloaded", "reloading"]),
    tools_available: z
      .boolean()
      .meta({ description: "It can be given tools to call; false while a model has never been loaded" }),
  })
  .meta({ id: "Model" });

export const modelListSchema = z
  .strictObject({ object: z.literal("list"), data: z.array(modelSchema) })
  .meta({ id: "ModelList" });

export type WireModel = z.output<typeof modelSchema>;

export const listModelsOperation: Operation = {
  id: "listModels",
  tag: "Models",
  summary: "List the models",
  description:
    'The default model first, as "default", then every model in the configured order, each followed by its adapters: a request may name those as its model.',
  answers: jsonAnswer(modelListSchema, "The models"),
  errors: [],
};

export const retrieveModelOperation: Operation = {
  id: "retrieveModel",
  tag: "Models",
  summary: "Show a model",
  path: z.strictObject({
    model: z.string().meta({ description: "Id of a model, or of one with an adapter; a slash in it is written %2F" }),
  }),
  answers: jsonAnswer(modelSchema, "The model"),
  errors: ["model_not_found"],
};
