// GET /v1/system/downloads: the models that the server is downloading for clients.
import { z } from "zod";
import type { RouteHandler } from "../context.ts";
import { jsonAnswer, type Operation } from "../operation.ts";

const downloadsSchema = z
  .strictObject({
    data: z.array(
      z.strictObject({
        model: z.string(),
        status: z.string().meta({ description: "What is done, for example `download owner/name`." }),
        done_bytes: z.int().min(0),
        total_bytes: z.int().min(0).nullable().meta({ description: "null: unknown." }),
      }),
    ),
  })
  .meta({ id: "ModelDownloads" });

export const listDownloadsOperation: Operation = {
  id: "listModelDownloads",
  tag: "Models",
  summary: "List the models being downloaded",
  description: "POST /api/pull begins a download. Served only with `max_model_downloads`.",
  answers: jsonAnswer(downloadsSchema, "The downloads in progress"),
  errors: [],
};

export const listDownloads: RouteHandler = (exchange, { library }) => {
  const data = (library?.downloads() ?? []).map(({ model, status, doneBytes, totalBytes }) => ({
    model,
    status,
    done_bytes: doneBytes,
    total_bytes: totalBytes,
  }));
  exchange.json(200, { data } satisfies z.output<typeof downloadsSchema>);
};
