// GET /v1/web_models: lists the models that browsers may copy and run on the visitor's GPU (setting web_models), and serves
// their files.
import { createReadStream } from "node:fs";
import { z } from "zod";
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { jsonAnswer, type Operation } from "../operation.ts";
import { sendPieces } from "../shared/answer/pieces.ts";

const PIECE_BYTES = 256 * 1024;

const webModelSchema = z
  .strictObject({
    id: z.string().meta({ description: "Name of the model's folder." }),
    object: z.literal("web_model"),
    bytes: z.int().meta({ description: "Size of all files." }),
    files: z.array(z.strictObject({ name: z.string(), bytes: z.int() })),
  })
  .meta({ id: "WebModel" });

const webModelListSchema = z
  .strictObject({ object: z.literal("list"), data: z.array(webModelSchema) })
  .meta({ id: "WebModelList" });

export const listWebModelsOperation: Operation = {
  id: "listWebModels",
  tag: "Models",
  summary: "List the models for browsers",
  description:
    "Models compiled for WebGPU, which the web UI copies and runs on the visitor's GPU: the folders of `web_models`. The server does not run them.",
  answers: jsonAnswer(webModelListSchema, "The models; none without `web_models`"),
  errors: [],
};

export const webModelFileOperation: Operation = {
  id: "webModelFile",
  tag: "Models",
  summary: "Download a file of a model for browsers",
  description: "The header x-file-bytes has its length, because the body is sent in pieces.",
  path: z.strictObject({
    model: z.string().meta({ description: "Id of a model of GET /v1/web_models." }),
    file: z.string().meta({ description: "Name of one of its files." }),
  }),
  answers: { 200: [{ contentType: "application/octet-stream", description: "The file" }] },
  errors: ["not_found"],
};

export const listWebModels: RouteHandler = (exchange, { webModels }) => {
  const data = webModels.map(
    ({ name, files }): z.output<typeof webModelSchema> => ({
      id: name,
      object: "web_model",
      bytes: files.reduce((sum, { bytes }) => sum + bytes, 0),
      files: files.map((file) => ({ name: file.name, bytes: file.bytes })),
    }),
  );
  exchange.json(200, { object: "list", data } satisfies z.output<typeof webModelListSchema>);
};

/**
 * Serves a file of a web model. Names in the request are looked up in lists read at startup; they never become part of a path.
 */
export const webModelFile: RouteHandler = async (exchange, { webModels, config }) => {
  const { model = "", file = "" } = exchange.parameters;
  const found = webModels.find(({ name }) => name === model)?.files.find(({ name }) => name === file);
  if (found === undefined) throw new ServerError("not_found", "no such model or file; see GET /v1/web_models");
  const pieces = createReadStream(found.path, { highWaterMark: PIECE_BYTES });
  const headers = {
    "content-type": "application/octet-stream",
    // A body that is sent in pieces cannot have a content-length, so this header contains the size.
    "x-file-bytes": String(found.bytes),
    "cache-control": "private, no-store",
  };
  try {
    await sendPieces(exchange, headers, pieces, config);
  } finally {
    pieces.destroy();
  }
};
