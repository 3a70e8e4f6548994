// Download of a stored file: streams the file from disk as fast as the client reads. The headers prevent a browser from
// executing the content as a page of this server.
import { createReadStream } from "node:fs";
import { basename } from "node:path";
import type { Files, StoredFile } from "../../actors/api/agent/files.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { Context } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { sendPieces } from "../shared/answer/pieces.ts";

const PIECE_BYTES = 256 * 1024;
/** Content types that cannot run code in a page of the server. PDF is excluded, because PDF viewers run scripts. */
const inlineTypes: ReadonlySet<string> = new Set([
  "image/png",
  "image/jpeg",
  "image/gif",
  "image/webp",
  "image/avif",
  "image/bmp",
  "text/plain",
  "text/csv",
  "text/markdown",
  "application/json",
  "audio/mpeg",
  "audio/wav",
  "video/mp4",
  "video/webm",
]);

/** Sends the content of a file. Throws file_not_found, file_elided or file_not_produced. */
export async function sendContent(exchange: Exchange, context: Context, files: Files, id: string): Promise<void> {
  const found = await files.content(id);
  if (found === null) throw fileNotFound(id);
  if (found.kind === "elided") {
    throw new ServerError(
      "file_elided",
      `the content of file "${id}" was deleted to make room for newer files (files_disk)`,
    );
  }
  if (found.kind === "failed") {
    const { failure } = found.file;
    throw new ServerError(
      "file_not_produced",
      `file "${id}" was not produced: ${failure?.message ?? "unknown reason"}`,
    );
  }
  const pieces = createReadStream(found.path, { highWaterMark: PIECE_BYTES });
  try {
    await sendPieces(exchange, contentHeaders(found.file), pieces, context.config);
  } finally {
    pieces.destroy();
  }
}

export function fileNotFound(id: string): ServerError {
  return new ServerError(
    "file_not_found",
    `no file has the id ${JSON.stringify(id.slice(0, 200))}; files are kept for 30 minutes`,
  );
}

function contentHeaders(file: StoredFile): Record<string, string> {
  const kind = inlineTypes.has(file.mimeType) ? "inline" : "attachment";
  return {
    "content-type": file.isText ? `${file.mimeType}; charset=utf-8` : file.mimeType,
    "content-disposition": `${kind}; ${fileNames(basename(file.name))}`,
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cross-origin-resource-policy": "cross-origin",
    "cache-control": "private, no-store",
  };
}

/** Returns the Content-Disposition parameters for a file name in both forms of RFC 6266: ASCII, and percent-encoded UTF-8. */
function fileNames(name: string): string {
  const ascii = name.replaceAll(/[^\x20-\x7e]|["\\%]/g, "_");
  const encoded = encodeURIComponent(name).replaceAll(
    /['()*!]/g,
    (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `filename="${ascii}"; filename*=UTF-8''${encoded}`;
}
