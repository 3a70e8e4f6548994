// File parts of messages: either the id of a stored file, or the content of a file, as base64 or as a data URL.
import { z } from "zod";
import type { InputFile } from "../../../actors/api/agent/agents.ts";
import { fileLimits } from "../../../actors/api/agent/files.ts";
import { checkedFileName } from "../../../actors/files/file-name.ts";
import { ServerError } from "../../../runtime/errors.ts";

const MAX_ID_LENGTH = 256;
const MAX_NAME_LENGTH = 1024;

/** Fields of a file part in OpenAI's protocols. */
export const fileFields = {
  file_id: z.string().min(1).max(MAX_ID_LENGTH).nullish().meta({ description: "Id of a stored file." }),
  filename: z.string().min(1).max(MAX_NAME_LENGTH).nullish(),
  file_data: z.string().nullish().meta({ description: "Content in base64, or a data URL." }),
} as const;

interface FileFields {
  readonly file_id?: string | null | undefined;
  readonly filename?: string | null | undefined;
  readonly file_data?: string | null | undefined;
}

/** Returns the error message for a combination of fields; null if the combination is valid. */
export function filePartProblem({ file_id: id, filename, file_data: data }: FileFields): string | null {
  const hasId = typeof id === "string";
  const hasData = typeof data === "string";
  if (hasId === hasData) return "expected either file_id, or filename and file_data";
  return hasData && typeof filename !== "string" ? "expected a filename beside file_data" : null;
}

/** Translates a file part. `message`: index of the message with the part. Throws invalid_value for the field `param`. */
export function inputFile(part: FileFields, message: number, param: string): InputFile {
  if (typeof part.file_id === "string") return { message, id: part.file_id };
  const name = checkedFileName(part.filename ?? "", false);
  return { message, name, content: decoded(part.file_data ?? "", param) };
}

const dataUrl = /^data:[^,;]{0,256}(?:;[^,;]{1,256}){0,8};base64,/i;
const base64 = /^[A-Za-z0-9+/_-]*={0,2}$/;

/** Decodes base64 or a base64 data URL. */
function decoded(text: string, param: string): Uint8Array {
  const head = dataUrl.exec(text)?.[0] ?? "";
  const body = text.slice(head.length);
  if (text.startsWith("data:") && head === "") throw invalid("a data URL with base64 content", param);
  if (!base64.test(body) || body.replace(/=+$/, "").length % 4 === 1) throw invalid("base64 or a data URL", param);
  const bytes = Buffer.from(body, "base64");
  if (bytes.length <= fileLimits.maxFileBytes) return new Uint8Array(bytes);
  throw new ServerError(
    "invalid_value",
    `expected a file of at most ${fileLimits.maxFileBytes} bytes, got ${bytes.length}`,
    {
      param,
    },
  );
}

function invalid(what: string, param: string): ServerError {
  return new ServerError("invalid_value", `expected ${what}; got other text`, { param });
}
