// Upload of a file: reads the form (multipart/form-data) from the file that holds the body, and writes the file part to the
// staging folder. Every bound is checked while the form is read.
import { randomBytes } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { type BusboyHeaders, type BusboyInstance, Busboy as Parser } from "@fastify/busboy";
import { fileLimits } from "../../actors/api/agent/files.ts";
import { checkedFileName } from "../../actors/files/file-name.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { HttpRequest } from "../server/edge.ts";

const MAX_FIELDS = 16;
const MAX_FIELD_BYTES = 1024;
const MAX_PART_HEADER_PAIRS = 32;
const MAX_HEADER_BYTES = 16 * 1024;

export interface UploadedForm {
  readonly fields: ReadonlyMap<string, string>;
  /** null: the form has no file part. */
  readonly file: { readonly name: string; readonly staged: string } | null;
}

/** Reads the form. The staged file is removed if the form is refused. Throws invalid_value, invalid_content_type, body_too_large. */
export async function readForm(request: HttpRequest, stagingFolder: string): Promise<UploadedForm> {
  const staged = `form-${randomBytes(16).toString("hex")}`;
  try {
    return await parsed(request, stagingFolder, staged);
  } catch (error) {
    await rm(join(stagingFolder, staged), { force: true });
    throw error;
  }
}

async function parsed(request: HttpRequest, stagingFolder: string, staged: string): Promise<UploadedForm> {
  const { bodyFile, headers } = request;
  if (bodyFile === undefined) throw invalid("file", "expected a form with a file; the body is empty");
  const encoding = headers.get("content-encoding");
  if (encoding !== undefined && encoding !== "identity") {
    throw invalid("file", `expected a body without content-encoding, got "${encoding.slice(0, 50)}"`);
  }
  const busboy = createParser(headers.get("content-type") ?? "");
  const fields = new Map<string, string>();
  let file: UploadedForm["file"] = null;
  let writing: Promise<void> = Promise.resolve();
  let refusal: ServerError | null = null;
  const refuse = (error: ServerError): void => {
    refusal ??= error;
    reader.destroy();
  };
  const reader = createReadStream(bodyFile);

  busboy.on("field", (name, value, isNameCut, isValueCut) => {
    if (isNameCut || isValueCut) refuse(invalid("file", `expected fields of at most ${MAX_FIELD_BYTES} bytes`));
    else if (fields.has(name)) refuse(invalid(shown(name), "expected each field once"));
    else fields.set(name, value);
  });
  busboy.on("file", (field, stream, name) => {
    if (field !== "file") refuse(invalid(shown(field), `expected the file in the field "file"`));
    else if (file !== null) refuse(invalid("file", "expected one file"));
    else {
      try {
        file = { name: checkedFileName(name ?? "", false), staged };
      } catch (error) {
        refuse(error as ServerError);
      }
    }
    if (refusal !== null) {
      stream.resume();
      return;
    }
    stream.on("limit", () => refuse(tooLarge()));
    writing = pipeline(stream, createWriteStream(join(stagingFolder, staged), { flags: "wx", mode: 0o600 }));
    writing.catch((error: NodeJS.ErrnoException) =>
      refuse(error.code === undefined ? incomplete(error) : unwritable(error)),
    );
  });
  busboy.on("partsLimit", () => refuse(invalid("file", `expected at most ${MAX_FIELDS} parts`)));
  busboy.on("fieldsLimit", () => refuse(invalid("file", `expected at most ${MAX_FIELDS} fields`)));
  busboy.on("filesLimit", () => refuse(invalid("file", "expected one file")));
  try {
    await pipeline(reader, busboy);
    await writing;
  } catch (error) {
    await Promise.allSettled([writing]);
    if (refusal === null) throw incomplete(error);
  }
  if (refusal !== null) throw refusal;
  return { fields, file };
}

function createParser(contentType: string): BusboyInstance {
  if (!/^multipart\/form-data\s*;/i.test(contentType)) {
    throw new ServerError(
      "invalid_content_type",
      `expected multipart/form-data with a boundary, got "${shown(contentType)}"`,
    );
  }
  try {
    return new Parser({
      headers: { "content-type": contentType } as BusboyHeaders,
      limits: {
        fieldNameSize: 100,
        fieldSize: MAX_FIELD_BYTES,
        fields: MAX_FIELDS,
        fileSize: fileLimits.maxFileBytes,
        files: 1,
        parts: MAX_FIELDS,
        headerPairs: MAX_PART_HEADER_PAIRS,
        headerSize: MAX_HEADER_BYTES,
      },
      // Keeps any path in the file name, because checkedFileName checks the whole name.
      preservePath: true,
    });
  } catch (error) {
    throw invalid("file", `expected a form (multipart/form-data): ${reasonOf(error)}`);
  }
}

function incomplete(error: unknown): ServerError {
  return invalid("file", `expected a complete form (multipart/form-data): ${reasonOf(error)}`);
}

function unwritable(error: Error): ServerError {
  return new ServerError("storage_unavailable", `the file cannot be written now: ${error.message}`);
}

function tooLarge(): ServerError {
  return new ServerError("body_too_large", `expected a file of at most ${fileLimits.maxFileBytes} bytes, got more`);
}

function invalid(param: string, message: string): ServerError {
  return new ServerError("invalid_value", message, { param });
}

function shown(text: string): string {
  return text.slice(0, 100);
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
