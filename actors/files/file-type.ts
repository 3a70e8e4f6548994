// File type: determines the content type and the format of a file from its bytes and its name.
import { fileTypeFromBuffer } from "file-type";
import { Mime } from "mime";
import standardTypes from "mime/types/standard.js";

/** Number of leading bytes of a file from which the type is determined. */
export const headBytes = 4100;

/** File extensions that the library does not know, or maps to a type that tools rarely write (`ts` to MPEG video). */
const mime = new Mime(standardTypes).define(
  {
    "text/x-python": ["py", "pyw"],
    "text/typescript": ["ts", "tsx", "mts", "cts"],
    "text/x-shellscript": ["sh", "bash"],
    "application/x-ndjson": ["jsonl", "ndjson"],
    "application/toml": ["toml"],
    "application/yaml": ["yaml", "yml"],
    "application/vnd.apache.parquet": ["parquet"],
    "application/octet-stream": ["gguf", "npy", "npz", "pkl"],
    // These formats are zip archives. The first bytes do not always show which of these formats a file has.
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ["docx"],
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ["pptx"],
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ["xlsx"],
    "application/vnd.oasis.opendocument.text": ["odt"],
    "application/vnd.oasis.opendocument.presentation": ["odp"],
    "application/vnd.oasis.opendocument.spreadsheet": ["ods"],
  },
  true,
);

/**
 * Returns the content type of a file. For a binary file, the first bytes determine the type, or else the name. For a text file,
 * the name determines it.
 */
export async function mimeTypeOf(name: string, head: Uint8Array, isText: boolean): Promise<string> {
  const byName = mime.getType(name);
  if (isText) return byName !== null && isTextual(byName) ? byName : "text/plain";
  const found = await fileTypeFromBuffer(head).catch(() => undefined);
  if (found === undefined || found.mime === "application/zip")
    return byName ?? found?.mime ?? "application/octet-stream";
  return found.mime;
}

/** Returns the format of a file: `given`, or else the file extension; null = the name has no extension. */
export function formatOf(name: string, given: string | null): string | null {
  if (given !== null && given !== "") return given.toLowerCase();
  const extension = /\.([A-Za-z0-9]{1,16})$/.exec(name)?.[1];
  return extension === undefined ? null : extension.toLowerCase();
}

function isTextual(type: string): boolean {
  return (
    type.startsWith("text/") ||
    /^(?:application|image)\/(?:[\w.+-]*\+)?(?:json|xml|yaml|toml|javascript|x-ndjson|sql)$/.test(type)
  );
}
