// Errors of a model's file that cannot be opened.
import { ServerError } from "../../runtime/errors.ts";

/** Codes of the operating system for a state that may pass: no free file descriptor or memory, a disk or network that fails. */
const passing: ReadonlySet<unknown> = new Set([
  ...["EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EINTR", "EBUSY", "EIO", "ESTALE", "ETIMEDOUT"],
]);

/** Creates the error for a failed open(): `model_failed`, after which the load is retried, or else `model_file_invalid`. */
export function openFailure(cause: unknown, message: string): ServerError {
  const { code } = cause as NodeJS.ErrnoException;
  return new ServerError(passing.has(code) ? "model_failed" : "model_file_invalid", message, { cause });
}
