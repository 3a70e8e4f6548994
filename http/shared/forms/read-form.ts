// Forms: reads a form (multipart/form-data) from the file that contains the request body, and writes the uploaded files to a
// staging folder. All limits are enforced while reading.
import { randomBytes } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { type BusboyHeaders, type BusboyInstance, Busboy as Parser } from "@fastify/busboy";
import { checkedFileName } from "../../../actors/files/file-name.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { HttpRequest } from "../../server/edge.ts";

const MAX_FIELDS = 16;
const MAX_FIELD_BYTES = 1024;
const MAX_PART_HEADER_PAIRS = 32;
const MAX_HEADER_BYTES = 16 * 1024;

/** Limits on the files of a form. */
export interface FormRules {
  /** Names of the form fields that may contain files. Error messages about files use the first name. */
  readonly fileFields: readonly [string, ...string[]];
  readonly maxFiles: number;
  readonly maxFileBytes: number;
  /** Whether file names may be relative paths that contain `/`. */
  readonly allowsFolders: boolean;
}

export interface UploadedForm {
  readonly fields: ReadonlyMap<string, string>;
  /** Files in the order of the form. `staged`: name in the staging folder. The caller must move or delete these files. */
  readonly files: readonly { readonly name: string; readonly staged: string }[];
}

/**
 * Reads a form. If the form is rejected, deletes the staged files. Throws invalid_value, invalid_content_type,
 * body_too_large and storage_unavailable.
 */
export async function readForm(request: HttpRequest, stagingFolder: string, rules: FormRules): Promise<UploadedForm> {
  const id = randomBytes(16).toString("hex");
  const files: { name: string; staged: string }[] = [];
  try {
    const fields = await parsed(request, rules, (name) => {
      const staged = `form-${id}-${files.length}`;
      files.push({ name, staged });
      return join(stagingFolder, staged);
    });
    return { fields, files };
  } catch (error) {
    await removeStaged(files, stagingFolder);
    throw error;
  }
}

/** Deletes staged files, except files that have been moved. */
export async function removeStaged(files: UploadedForm["files"], stagingFolder: string): Promise<void> {
  await Promise.all(files.map(({ staged }) => rm(join(stagingFolder, staged), { force: true })));
}

/** Reads the form and returns its fields. `stage`: returns the path of the file to which an uploaded file is written. */
async function parsed(
  request: HttpRequest,
  rules: FormRules,
  stage: (name: string) => string,
): Promise<UploadedForm["fields"]> {
  const { bodyFile, headers } = request;
  const [fileField] = rules.fileFields;
  if (bodyFile === undefined) throw invalid(fileField, "expected a form with a file; the body is empty");
  const encoding = headers.get("content-encoding");
  if (encoding !== undefined && encoding !== "identity") {
    throw invalid(fileField, `expected a body without content-encoding, got "${encoding.slice(0, 50)}"`);
  }
  const busboy = createParser(headers.get("content-type") ?? "", rules);
  const fields = new Map<string, string>();
  const writing: Promise<void>[] = [];
  let count = 0;
  let refusal: ServerError | null = null;
  // Stops the parser and the writing of files. The parser itself does not end a file in progress when its input stops.
  const stop = new AbortController();
  const { signal } = stop;
  const refuse = (error: ServerError): void => {
    refusal ??= error;
    stop.abort();
  };

  busboy.on("field", (name, value, isNameCut, isValueCut) => {
    if (isNameCut || isValueCut)
      refuse(invalid(shown(name), `expected fields of at most ${MAX_FIELD_BYTES} bytes, got a longer one`));
    else if (fields.has(name)) refuse(invalid(shown(name), "expected each field once"));
    else fields.set(name, value);
  });
  busboy.on("file", (field, stream, name) => {
    const problem = fileProblem(field, name, ++count, rules);
    if (problem !== null) refuse(problem);
    if (refusal !== null) {
      stream.resume();
      return;
    }
    stream.on("limit", () => refuse(tooLarge(rules)));
    const written = pipeline(
      stream,
      createWriteStream(stage(checkedFileName(name, rules.allowsFolders)), { flags: "wx", mode: 0o600 }),
      { signal },
    );
    // Once the form is given up, the writing of its files fails too.
    written.catch((error: Error) => signal.aborted || refuse(failed(error, rules)));
    writing.push(written);
  });
  busboy.on("partsLimit", () => refuse(invalid(fileField, `expected at most ${maxParts(rules)} parts`)));
  busboy.on("fieldsLimit", () => refuse(invalid(fileField, `expected at most ${MAX_FIELDS} fields`)));
  busboy.on("filesLimit", () => refuse(tooMany(rules)));
  try {
    await pipeline(createReadStream(bodyFile), busboy, { signal });
    await Promise.all(writing);
  } catch (error) {
    stop.abort();
    await Promise.allSettled(writing);
    if (refusal === null) throw failed(error, rules);
  }
  if (refusal !== null) throw refusal;
  return fields;
}

/** Returns the error for an uploaded file; null if the file is accepted. */
function fileProblem(field: string, name: string | undefined, count: number, rules: FormRules): ServerError | null {
  const { fileFields, maxFiles, allowsFolders } = rules;
  if (!fileFields.includes(field)) {
    return invalid(shown(field), `expected files in the field "${fileFields.join('" or "')}"`);
  }
  if (count > maxFiles) return tooMany(rules);
  if (name === undefined) return invalid(fileFields[0], "expected a file name (filename) for each file, got none");
  try {
    checkedFileName(name, allowsFolders);
    return null;
  } catch (error) {
    return invalid(fileFields[0], (error as ServerError).message);
  }
}

function maxParts({ maxFiles }: FormRules): number {
  return MAX_FIELDS - 1 + maxFiles;
}

function createParser(contentType: string, rules: FormRules): BusboyInstance {
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
        fileSize: rules.maxFileBytes,
        files: rules.maxFiles,
        parts: maxParts(rules),
        headerPairs: MAX_PART_HEADER_PAIRS,
        headerSize: MAX_HEADER_BYTES,
      },
      // The parser must not strip the path from a file name, because checkedFileName checks the complete name.
      preservePath: true,
    });
  } catch (error) {
    throw invalid(rules.fileFields[0], `expected a form (multipart/form-data): ${reasonOf(error)}`);
  }
}

/** Returns `storage_unavailable` if the body or a file could not be read or written, else the error for an incomplete form. */
function failed(error: unknown, { fileFields: [fileField] }: FormRules): ServerError {
  if (error instanceof Error && "syscall" in error && "code" in error) {
    const message = `the upload cannot be stored now (${error.code}); try again soon`;
    return new ServerError("storage_unavailable", message, { cause: error });
  }
  return invalid(fileField, `expected a complete form (multipart/form-data): ${reasonOf(error)}`);
}

function tooLarge({ maxFileBytes }: FormRules): ServerError {
  return new ServerError("body_too_large", `expected files of at most ${maxFileBytes} bytes, got more`);
}

function tooMany({ fileFields: [fileField], maxFiles }: FormRules): ServerError {
  return invalid(fileField, maxFiles === 1 ? "expected one file" : `expected at most ${maxFiles} files`);
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
