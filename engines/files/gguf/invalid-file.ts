// Owns what is said of a GGUF file that cannot be used. Names and values come from the file, so they are cut short here: a
// damaged length must not make a message of megabytes.
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

/** A text of the file in quotes. */
export function quote(text: string): string {
  return JSON.stringify(text.length > maxQuoted ? `${text.slice(0, maxQuoted)}…` : text);
}

/** A key's value, or what there is in its place. */
export function describeValue(value: unknown): string {
  if (value === undefined) return "missing";
  if (typeof value === "string") return quote(value);
  return Array.isArray(value) ? `a list of ${value.length}` : String(value);
}
