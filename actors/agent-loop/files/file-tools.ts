// File tools: the built-in tools that read the file store: list_files and read_file.
import { open } from "node:fs/promises";
import { ServerError } from "../../../runtime/errors.ts";
import { jsonOrText } from "../../../runtime/json-or-text.ts";
import type { Files, StoredFile } from "../../api/agent/files.ts";
import { builtInPrefix, maxReadCharacters, toolArguments } from "../../tools/schemas.ts";

const maxListed = 256;

/** Returns the list of a session's files as JSON text. */
export async function listFiles(files: Files, session: string): Promise<string> {
  const { files: found, hasMore } = await files.list({ session, after: null, limit: maxListed });
  const listed = found.map(({ id, name, bytes, format, mimeType, purpose }) => ({
    id,
    name,
    bytes,
    format,
    mime_type: mimeType,
    purpose,
  }));
  return JSON.stringify({
    files: listed,
    ...(hasMore ? { note: `only the newest ${maxListed} files are listed` } : {}),
  });
}

/** Reads a range of characters of a text file. Returns JSON text. Throws invalid_value. `text`: arguments of read_file as JSON text. */
export async function readFileText(files: Files, text: string): Promise<string> {
  const args = toolArguments.read_file.safeParse(jsonOrText(text));
  if (!args.success) {
    throw invalid(`expected {"file_id": …, "start"?: …, "end"?: …} as arguments of ${builtInPrefix}read_file`);
  }
  const { file_id: id, start = 0, end = start + maxReadCharacters } = args.data;
  if (end < start) throw invalid(`expected an end of at least start (${start}), got ${end}`);
  if (end - start > maxReadCharacters) {
    throw invalid(`expected at most ${maxReadCharacters} characters, got ${end - start}; read the file in parts`);
  }
  const found = await files.content(id);
  if (found === null) throw invalid(`no file has the id ${JSON.stringify(id)}; ${builtInPrefix}list_files lists them`);
  if (found.kind !== "content") throw invalid("the content of the file is not kept");
  if (!found.file.isText) throw invalid(`the file is not text (${found.file.mimeType}); read it with code`);
  const content = await characters(found.path, start, end);
  return JSON.stringify({ ...described(found.file), start, end: start + content.length, content });
}

function described({ id, name, bytes }: StoredFile): object {
  return { id, name, bytes };
}

function invalid(message: string): ServerError {
  return new ServerError("invalid_value", message);
}

const PIECE_BYTES = 256 * 1024;

/** Returns the characters (UTF-16 units) from `start` to `end` of a UTF-8 file, which is read in pieces. */
async function characters(path: string, start: number, end: number): Promise<string> {
  const file = await open(path, "r");
  try {
    const decoder = new TextDecoder();
    const buffer = new Uint8Array(PIECE_BYTES);
    let at = 0;
    let out = "";
    while (at < end) {
      const { bytesRead } = await file.read(buffer, 0, PIECE_BYTES, null);
      const text = decoder.decode(buffer.subarray(0, bytesRead), { stream: bytesRead > 0 });
      out += text.slice(Math.max(start - at, 0), Math.max(end - at, 0));
      at += text.length;
      if (bytesRead === 0) break;
    }
    return out;
  } finally {
    await file.close();
  }
}
