// Errors for unusable GGUF files. Names and values from the file are shortened in the messages, because a damaged
// length field could otherwise produce a message of many megabytes.
import { ServerError } from "../../../runtime/errors.ts";

const maxQuoted = 64;

export function truncatedFile(path: string, fileBytes: number): ServerError {
  return new ServerError(
    "model_file_invalid",
    `${path} ends after ${fileBytes} bytes, before its own contents do; it is an incomplete copy, fetch it again`,
  );
}

export function damagedFile(path: string, problem: string): ServerError {
  return new ServerError("model_file_invalid", `${path} is damaged: ${problem}; fetch it again`);
}

/** Quotes a text from the file, shortened. */
export function quote(text: string): string {
  return JSON.stringify(text.length > maxQuoted ? `${text.slice(0, maxQuoted)}…` : text);
}

/** Formats a key's value for a message; "missing" for an absent key. */
export function describeValue(value: unknown): string {
  if (value === undefined) return "missing";
  if (typeof value === "string") return quote(value);
  return Array.isArray(value) ? `a list of ${value.length}` : String(value);
}
