// Adapter errors: messages and codes. File system errors are converted to ServerErrors here, and every message begins
// with the adapter's source. Paths are shown as the client gave them, not as resolved.
import { type ErrorCode, ServerError } from "../../../runtime/errors.ts";
import { quote } from "../gguf/invalid-file.ts";

/** Returns the error for an adapter whose content cannot be used. */
export function invalidAdapter(problem: string): ServerError {
  return new ServerError("invalid_lora_adapter", problem);
}

/** Runs a task that reads an adapter's files. Adds the adapter's source to the messages of its errors. */
export async function reading<Result>(source: string, task: () => Promise<Result>): Promise<Result> {
  try {
    return await task();
  } catch (error) {
    const known = isSystemError(error) ? new ServerError("adapter_storage_unavailable", unreadable(error)) : error;
    if (!(known instanceof ServerError)) throw error;
    throw new ServerError(known.code, `adapter ${quote(source)}: ${known.message}`, { cause: error });
  }
}

/** Runs a task that writes the prepared adapter. File system errors become ServerErrors. */
export async function writing<Result>(task: () => Promise<Result>): Promise<Result> {
  try {
    return await task();
  } catch (error) {
    if (!isSystemError(error)) throw error;
    throw new ServerError(
      "lora_storage_unavailable",
      `the prepared adapter cannot be written (${error.code}); make room on the server's disk, then try again`,
      { cause: error },
    );
  }
}

/**
 * Runs a task and returns its result. If it fails with one of the codes in `codes`, the error listed for that code is
 * thrown.
 */
export async function expecting<Result>(
  codes: Readonly<Record<string, ServerError>>,
  task: () => Promise<Result>,
): Promise<Result> {
  try {
    return await task();
  } catch (error) {
    throw (isSystemError(error) && error.code && codes[error.code]) || error;
  }
}

/** Runs a GGUF reader on an adapter file. Its error `model_file_invalid` becomes `invalid_lora_adapter`. */
export async function asInvalidAdapter<Result>(task: () => Promise<Result>): Promise<Result> {
  const own: ErrorCode = "model_file_invalid";
  try {
    return await task();
  } catch (error) {
    throw error instanceof ServerError && error.code === own ? invalidAdapter(error.message) : error;
  }
}

function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && "errno" in error && "syscall" in error;
}

function unreadable({ code }: NodeJS.ErrnoException): string {
  return `its files cannot be read now (${code}); see that the server may read them, then try again`;
}
