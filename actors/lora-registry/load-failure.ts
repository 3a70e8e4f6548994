// Owns what whoever loads an adapter is told where it fails, and what the log is. Used by ModelAdapters.
import { type ErrorCode, ServerError, toErrorRecord } from "../../runtime/errors.ts";

/** The little of a logger that is used here. */
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

/** What the log shows of a reason, which may quote what an adapter's files say. */
const loggedReason = 500;

/** Codes that say nothing of the adapter: what was to load it has failed itself. */
const unforeseen: readonly ErrorCode[] = ["internal", "timeout", "peer_gone"];

/** What the asker is told of a failure; the log has it in any case. */
export function loadFailure({ model, alias, log }: Load, error: unknown): unknown {
  const { code, message } = toErrorRecord(error);
  const fields = { model, alias, code };
  if (unforeseen.includes(code)) {
    log.error({ ...fields, err: error }, "loading an adapter failed");
    const text = `loading adapter "${alias}" failed for a reason that nobody foresaw; the server's log has it`;
    return new ServerError("lora_load_task_failed", text, { cause: error });
  }
  log.warn({ ...fields, reason: message.slice(0, loggedReason) }, "an adapter was not loaded");
  if (code === "model_file_invalid") return modelUnreadable(error);
  return code === "cancelled" ? shuttingDown() : error;
}

/** A place that does not answer has no room for it either; what else it says is the reason itself. */
export function notTaken(error: unknown): unknown {
  const { code, message } = toErrorRecord(error);
  if (code !== "peer_gone" && code !== "timeout") return error;
  const text = `the engine did not take the adapter: ${message}`;
  return new ServerError("lora_device_load_failed", text, { cause: error });
}

export function shuttingDown(): ServerError {
  return new ServerError("draining", "the server is shutting down; load the adapter on another one");
}

/** Where the model's file is, is no business of who loads an adapter; the log says it. */
function modelUnreadable(cause: unknown): ServerError {
  const text =
    "the model's own file cannot be read any more, so no adapter can be checked against it; the server's log has why";
  return new ServerError("invalid_lora_runtime", text, { cause });
}
