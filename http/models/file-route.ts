// GET /v1/models/{model}/file: streams the model's GGUF file from disk as fast as the client reads. Served only with the
// setting share_model_files, because permission to use a model does not imply permission to copy it.
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { basename } from "node:path";
import type { ModelEntry } from "../../actors/api/inference.ts";
import { shardPaths } from "../../engines/files/gguf/shards.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { sendPieces } from "../shared/answer/pieces.ts";

const PIECE_BYTES = 256 * 1024;

/** Returns the name of the file that clients can download; null if the model consists of several files. */
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
    // A body that is sent in pieces cannot have a content-length, so this header contains the size.
    "x-file-bytes": String(size),
    "cache-control": "private, no-store",
  };
  try {
    await sendPieces(exchange, headers, pieces, config);
  } finally {
    pieces.destroy();
  }
};
