// Load failures of adapters: creates the errors for the client, and writes the log lines.
import { type ErrorCode, ServerError, toErrorRecord } from "../../runtime/errors.ts";

/** The logger methods that this module uses. */
export interface AdapterLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

interface Load {
  readonly model: string;
  readonly alias: string;
  readonly log: AdapterLog;
}

/** Maximum number of characters of a logged reason. A reason may quote the adapter's files. */
const loggedReason = 500;

/** Codes of internal failures that are unrelated to the adapter's content. */
const unforeseen: readonly ErrorCode[] = ["internal", "timeout", "peer_gone"];

/** Logs the failure and returns the error for the client. */
export function loadFailure({ model, alias, log }: Load, error: unknown): unknown {
  const { code, message } = toErrorRecord(error);
  const fields = { model, alias, code };
  if (unforeseen.includes(code)) {
    log.error({ ...fields, err: error }, "loading an adapter failed");
    const text = `loading adapter "${alias}" failed with an internal error; details are in the server's log`;
    return new ServerError("lora_load_task_failed", text, { cause: error });
  }
  log.warn({ ...fields, reason: message.slice(0, loggedReason) }, "an adapter was not loaded");
  if (code === "model_file_invalid") return modelUnreadable(error);
  if (code === "model_failed") return modelUnreadableNow(error);
  return code === "cancelled" ? shuttingDown() : error;
}

/**
 * Converts `peer_gone` and `timeout` to lora_device_load_failed, because without a reply of the worker, the adapter counts as not
 * loaded. Returns other errors unchanged.
 */
export function notTaken(error: unknown): unknown {
  const { code, message } = toErrorRecord(error);
  if (code !== "peer_gone" && code !== "timeout") return error;
  const text = `the engine did not take the adapter: ${message}`;
  return new ServerError("lora_device_load_failed", text, { cause: error });
}

export function shuttingDown(): ServerError {
  return new ServerError("draining", "the server is shutting down; load the adapter on another one");
}

/** Returns the error for a model file that cannot be read because of a temporary failure. The message omits the file's path. */
function modelUnreadableNow(cause: unknown): ServerError {
  const text = "the model's own file cannot be read at the moment (the reason is in the server's log); try again";
  return new ServerError("lora_storage_unavailable", text, { cause });
}

/** Returns the error for an unreadable model file. The message omits the file's path, which is only logged. */
function modelUnreadable(cause: unknown): ServerError {
  const text =
    "the model's own file can no longer be read, so no adapter can be checked against it; the server's log has the reason";
  return new ServerError("invalid_lora_runtime", text, { cause });
}
