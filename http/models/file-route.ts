// GET /v1/models/{model}/file: the model's GGUF file, sent from the disk as fast as the client reads. Served only with the setting
// share_model_files, because a client that may use a model need not be allowed to have it.
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { basename } from "node:path";
import type { ModelEntry } from "../../actors/api/inference.ts";
import { shardPaths } from "../../engines/files/gguf/shards.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { sendPieces } from "../shared/answer/pieces.ts";

const PIECE_BYTES = 256 * 1024;

/** Name of the file that clients can download; null: the model is split over several files. */
export function sharedFileName({ path }: ModelEntry): string | null {
  return shardPaths(path).length === 1 ? basename(path) : null;
}

export const modelFile: RouteHandler = async (exchange, { inference, config }) => {
  const { id } = inference.resolveModel(exchange.parameters.model);
  const entry = inference.models().find((model) => model.id === id);
  if (entry === undefined) throw new ServerError("model_not_found", `model "${id}" was removed; see GET /v1/models`);
  const name = sharedFileName(entry);
  if (name === null) {
    throw new ServerError(
      "unsupported",
      `model "${id}" is split over several files; only single files can be downloaded`,
    );
  }
  const { size } = await stat(entry.path).catch((cause) => {
    throw new ServerError("not_found", `the file of model "${id}" cannot be read any more`, { cause });
  });
  const pieces = createReadStream(entry.path, { highWaterMark: PIECE_BYTES });
  const headers = {
    "content-type": "application/octet-stream",
    "content-disposition": `attachment; filename*=UTF-8''${encodeURIComponent(name)}`,
    // The length of a body that is sent in pieces cannot be in content-length.
    "x-file-bytes": String(size),
    "cache-control": "private, no-store",
  };
  try {
    await sendPieces(exchange, headers, pieces, config);
  } finally {
    pieces.destroy();
  }
};
