// Owns the one error class and the one table of error codes. Everybody may throw these; only http/ turns a code into a
// status, and nothing else builds error bodies. Errors cross threads as plain records.

/** Every code the server can answer with, and whether trying the same request again later can help. */
const codes = {
  invalid_json: { retryable: false },
  invalid_content_type: { retryable: false },
  body_too_large: { retryable: false },
  invalid_value: { retryable: false },
  unsupported: { retryable: false },
  conflict: { retryable: false },
  context_length_exceeded: { retryable: false },
  model_not_found: { retryable: false },
  not_found: { retryable: false },
  method_not_allowed: { retryable: false },
  queue_full: { retryable: true },
  queue_timeout: { retryable: true },
  mailbox_full: { retryable: true },
  model_loading: { retryable: true },
  model_failed: { retryable: true },
  draining: { retryable: true },
  timeout: { retryable: true },
  peer_gone: { retryable: true },
  reader_stalled: { retryable: true },
  cancelled: { retryable: false },
  metrics_disabled: { retryable: false },
  config_invalid: { retryable: false },
  model_file_invalid: { retryable: false },
  model_source_unreachable: { retryable: true },
  internal: { retryable: false },
} as const;

export type ErrorCode = keyof typeof codes;

/** A ServerError as it crosses a thread or process boundary. */
export interface ErrorRecord {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string;
  /** Seconds after which trying again may help, where the thrower can tell better than the code does. */
  readonly retryAfterSeconds?: number;
}

interface ErrorOptions {
  readonly param?: string | undefined;
  readonly cause?: unknown;
  readonly retryAfterSeconds?: number | undefined;
}

/**
 * An error a user may see. `message` says what was expected, what came and what to do; `param` names the request field
 * or config key at fault.
 */
export class ServerError extends Error {
  override readonly name = "ServerError";
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.param = options.param;
    this.retryAfterSeconds = options.retryAfterSeconds;
  }

  get retryable(): boolean {
    return codes[this.code].retryable;
  }
}

/** The plain record of any thrown value; what is not a ServerError becomes `internal`. */
export function toErrorRecord(thrown: unknown): ErrorRecord {
  if (thrown instanceof ServerError) {
    const { code, message, param, retryAfterSeconds } = thrown;
    return {
      code,
      message,
      ...(param === undefined ? {} : { param }),
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
    };
  }
  return { code: "internal", message: thrown instanceof Error ? thrown.message : String(thrown) };
}

/** The error a record stands for. */
export function fromErrorRecord(record: ErrorRecord): ServerError {
  return new ServerError(record.code, record.message, record);
}
