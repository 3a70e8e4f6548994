// Errors of a model's file that cannot be opened or read.
import { ServerError } from "../../runtime/errors.ts";

/** Error codes of temporary failures: no free file descriptor or memory, a disk or network that fails. */
const passing: ReadonlySet<unknown> = new Set([
  ...["EMFILE", "ENFILE", "ENOMEM", "EAGAIN", "EINTR", "EBUSY", "EIO", "ESTALE", "ETIMEDOUT"],
]);

/**
 * Creates the error for a failed open() or read(): `model_failed`, after which the load is retried, or else `model_file_invalid` with
 * `advice` on what to do.
 */
export function accessFailure(cause: unknown, problem: string, advice: string): ServerError {
  const { code } = cause as NodeJS.ErrnoException;
  if (passing.has(code)) return new ServerError("model_failed", `${problem}; try again`, { cause });
  return new ServerError("model_file_invalid", `${problem}; ${advice}`, { cause });
}
