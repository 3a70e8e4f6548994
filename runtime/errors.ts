// Error class and table of error codes. All layers throw these errors. Only http/ maps a code to an HTTP status and builds
// error bodies. Errors are sent between threads as plain records.

/** Error codes. `retryable`: whether the same request may succeed later. `meaning`: description for the documents. */
const codes = {
  invalid_json: { retryable: false, meaning: "The body is not JSON in UTF-8." },
  invalid_content_type: { retryable: false, meaning: "The content type is not `application/json` in UTF-8." },
  invalid_request: {
    retryable: false,
    meaning:
      "The bytes are not an HTTP/1.1 request, or its length is ambiguous: a transfer-encoding other than `chunked`, or two lengths. The connection is closed.",
  },
  headers_too_large: { retryable: false, meaning: "The request line and headers together are larger than 16 KiB." },
  request_timeout: {
    retryable: true,
    meaning: "The request took too long to arrive (`request_timeout_secs`), or stalled.",
  },
  body_too_large: { retryable: false, meaning: "The body is larger than 50 MiB." },
  invalid_value: {
    retryable: false,
    meaning:
      "A field or parameter is missing, unknown, of the wrong type, out of range, or contradicts another; `param` names it.",
  },
  unsupported: {
    retryable: false,
    meaning: "A field asks for something this server or this model cannot do; `param` names it.",
  },
  conflict: { retryable: false, meaning: "The request conflicts with the object's current state." },
  context_length_exceeded: {
    retryable: false,
    meaning: "The prompt, or the prompt plus the requested tokens, exceeds the model's context.",
  },
  invalid_api_key: {
    retryable: false,
    meaning: "The request has no API key, or not one of the server's keys (`api_key`, `api_keys_file`).",
  },
  model_not_found: { retryable: false, meaning: "No model has this name; the message lists the existing models." },
  not_found: { retryable: false, meaning: "Nothing exists at this path, or no object has this id." },
  file_not_found: {
    retryable: false,
    meaning: "No file has this id, or the file has expired; files are kept for 30 minutes.",
  },
  file_elided: {
    retryable: false,
    meaning:
      "The content of the file was deleted because the files exceed `files_disk`; upload or create the file again.",
  },
  file_not_produced: {
    retryable: false,
    meaning: "The file was expected from a tool, which did not produce it; the message says why.",
  },
  session_not_found: {
    retryable: false,
    meaning: "No session has this id, or the session has expired; a session is kept for 30 minutes after its last use.",
  },
  skill_not_found: {
    retryable: false,
    meaning: "No skill has this id, or the skill has no such version.",
  },
  previous_response_not_found: {
    retryable: false,
    meaning:
      "No response has the id in `previous_response_id`; send the whole conversation as `input`. An unstored response can be continued only on the WebSocket connection that created it, as the connection's last response.",
  },
  websocket_connection_limit_reached: {
    retryable: false,
    meaning: "The WebSocket connection has reached its maximum lifetime (`websocket_lifetime_secs`); open a new one.",
  },
  method_not_allowed: {
    retryable: false,
    meaning: "The path does not support this method; `allow` lists the supported ones.",
  },
  queue_full: {
    retryable: true,
    meaning: "The limit of waiting requests is reached, or the limit of memory for their bodies or answers.",
  },
  queue_timeout: { retryable: true, meaning: "The request waited in the queue for longer than `queue_timeout_secs`." },
  mailbox_full: { retryable: true, meaning: "A component of the server has reached its limit of pending messages." },
  model_loading: { retryable: true, meaning: "The model is being loaded." },
  model_failed: { retryable: true, meaning: "The model failed while it generated, and is being restarted." },
  draining: { retryable: true, meaning: "The server is shutting down and takes no new requests." },
  timeout: { retryable: true, meaning: "A component of the server did not reply in time." },
  peer_gone: { retryable: true, meaning: "A component of the server ended before the answer was complete." },
  reader_stalled: { retryable: true, meaning: "The client read too slowly for too long." },
  forbidden: {
    retryable: false,
    meaning: "The host name or the origin of the request is not allowed by this server.",
  },
  storage_unavailable: {
    retryable: true,
    meaning: "The server's disk is full, or cannot be read or written now, or the server has too many open files.",
  },
  cancelled: { retryable: false, meaning: "The request was cancelled before it was completed." },
  metrics_disabled: { retryable: false, meaning: "Metrics are disabled on this server." },
  config_invalid: { retryable: false, meaning: "A setting is wrong; the message names it." },
  model_file_invalid: {
    retryable: false,
    meaning: "The model's file is damaged, or in a format that this server does not support.",
  },
  model_source_unreachable: {
    retryable: true,
    meaning: "The source that the model is downloaded from cannot be reached.",
  },
  tuning_failed: {
    retryable: false,
    meaning: "No settings of the model could be measured: it does not fit in memory, or its files are damaged.",
  },
  invalid_lora_name: {
    retryable: false,
    meaning: "The name of an adapter is empty, longer than 256 bytes, or contains characters that are not printable.",
  },
  invalid_lora_load_policy: {
    retryable: false,
    meaning: "The field `expected_generation` needs `load_inplace`.",
  },
  invalid_adapter_path: {
    retryable: false,
    meaning: "The path of an adapter is empty or invalid.",
  },
  invalid_adapter_file: {
    retryable: false,
    meaning: "A file of an adapter is not a regular file.",
  },
  adapter_path_forbidden: {
    retryable: false,
    meaning: "The path of an adapter leads out of `SERVICE_LORA_ADAPTER_ROOT`.",
  },
  adapter_file_forbidden: {
    retryable: false,
    meaning: "A file of an adapter lies outside of `SERVICE_LORA_ADAPTER_ROOT`.",
  },
  lora_adapter_not_found: {
    retryable: false,
    meaning: "The model has no adapter of this name.",
  },
  adapter_path_not_found: {
    retryable: false,
    meaning: "The path of an adapter does not exist.",
  },
  adapter_file_not_found: {
    retryable: false,
    meaning: "A file of an adapter does not exist.",
  },
  lora_runtime_unavailable: {
    retryable: false,
    meaning: "The model does not accept adapters; `enable_lora` enables them.",
  },
  lora_adapter_already_loaded: {
    retryable: false,
    meaning: "An adapter with this name is already loaded; `load_inplace` replaces it.",
  },
  lora_generation_mismatch: {
    retryable: false,
    meaning: "The adapter with this name has another generation than `expected_generation`.",
  },
  lora_rank_limit_exceeded: {
    retryable: false,
    meaning: "The rank of the adapter is above `lora_max_rank`.",
  },
  lora_adapter_limit_exceeded: {
    retryable: false,
    meaning: "The limit of loaded adapters (`lora_max_adapters`) is reached.",
  },
  lora_slot_space_exhausted: {
    retryable: false,
    meaning: "The engine cannot address more memory for adapters; unload others first.",
  },
  lora_byte_limit_exceeded: {
    retryable: false,
    meaning: "The adapters would exceed `lora_max_bytes` together.",
  },
  lora_alias_limit_exceeded: {
    retryable: false,
    meaning: "The limit of adapter names is reached.",
  },
  adapter_file_changed: {
    retryable: false,
    meaning: "A file of the adapter changed while it was read.",
  },
  model_state_conflict: {
    retryable: false,
    meaning: "The model is not loaded, or is being unloaded.",
  },
  lora_adapter_file_too_large: {
    retryable: false,
    meaning: "A file of the adapter is larger than `lora_max_bytes` allows.",
  },
  invalid_lora_adapter: {
    retryable: false,
    meaning: "The files of the adapter are damaged, in an unsupported format, or made for another model.",
  },
  lora_load_busy: {
    retryable: true,
    meaning: "Another adapter is being loaded; adapters are loaded one at a time.",
  },
  invalid_lora_runtime: {
    retryable: false,
    meaning: "The model's own file can no longer be read, so no adapter can be checked against it.",
  },
  lora_load_task_failed: {
    retryable: false,
    meaning: "Internal error while the adapter was loaded.",
  },
  adapter_storage_unavailable: {
    retryable: true,
    meaning: "The files of the adapter cannot be read now.",
  },
  lora_storage_unavailable: {
    retryable: true,
    meaning: "The server has no disk space for the adapter, or cannot read the model's file now.",
  },
  lora_device_load_failed: {
    retryable: true,
    meaning: "The engine has no memory for the adapter, or could not load it.",
  },
  internal: {
    retryable: false,
    meaning: "Internal error; details are in the server's log under the request id.",
  },
} as const;

export type ErrorCode = keyof typeof codes;

export const errorCodes = Object.keys(codes) as readonly ErrorCode[];

/** Returns the description of a code: a sentence for the documents. */
export function errorMeaning(code: ErrorCode): string {
  return codes[code].meaning;
}

/** A ServerError as plain data, in the form that is sent between threads or processes. */
export interface ErrorRecord {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string;
  /** Estimated seconds until another attempt may succeed; absent if there is no estimate. */
  readonly retryAfterSeconds?: number;
  /** Set with `context_length_exceeded`, for protocols that have their own wording of this error. */
  readonly lengths?: ContextLengths;
}

/** Token counts of a request that exceeds the context. `output` is null if the request does not limit its output. */
export interface ContextLengths {
  readonly limit: number;
  readonly prompt: number;
  readonly output: number | null;
}

interface ErrorOptions {
  readonly param?: string | undefined;
  readonly cause?: unknown;
  readonly retryAfterSeconds?: number | undefined;
  readonly lengths?: ContextLengths | undefined;
}

/**
 * An error shown to users. `message` says what was expected, what was received and what to do. `param` names the wrong request
 * field or configuration key.
 */
export class ServerError extends Error {
  override readonly name = "ServerError";
  readonly code: ErrorCode;
  readonly param: string | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly lengths: ContextLengths | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.param = options.param;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.lengths = options.lengths;
  }

  get retryable(): boolean {
    return codes[this.code].retryable;
  }
}

/** Converts a thrown value to a plain record. Values other than a ServerError become `internal`. */
export function toErrorRecord(thrown: unknown): ErrorRecord {
  if (thrown instanceof ServerError) {
    const { code, message, param, retryAfterSeconds, lengths } = thrown;
    return {
      code,
      message,
      ...(param === undefined ? {} : { param }),
      ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
      ...(lengths === undefined ? {} : { lengths }),
    };
  }
  return { code: "internal", message: thrown instanceof Error ? thrown.message : String(thrown) };
}

/** Creates the error from its record. */
export function fromErrorRecord(record: ErrorRecord): ServerError {
  return new ServerError(record.code, record.message, record);
}

/** Joins the lines that a library or program printed into one line, for use in an error message. */
export function inOneLine(messages: string): string {
  return messages.trim().replaceAll(/\s*\n\s*/g, "; ");
}
