// Owns the one error class and the one table of error codes. Everybody may throw these; only http/ turns a code into a
// status, and nothing else builds error bodies. Errors cross threads as plain records.

/** Every code the server can answer with, whether trying the same request again later can help, and what it means. */
const codes = {
  invalid_json: { retryable: false, meaning: "The body is not JSON in UTF-8." },
  invalid_content_type: { retryable: false, meaning: "The content type is not `application/json` in UTF-8." },
  invalid_request: {
    retryable: false,
    meaning:
      "The bytes are no request of HTTP/1.1, or leave open where it ends: a transfer-encoding other than `chunked`, two lengths. The connection is closed.",
  },
  headers_too_large: { retryable: false, meaning: "The request line and headers together are larger than 16 KiB." },
  request_timeout: {
    retryable: true,
    meaning: "The request took too long to arrive (`request_timeout_secs`), or stood still on its way.",
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
  conflict: { retryable: false, meaning: "The request does not fit the state its object is in now." },
  context_length_exceeded: {
    retryable: false,
    meaning: "The prompt, or the prompt and the tokens asked for, do not fit the model's context.",
  },
  model_not_found: { retryable: false, meaning: "There is no model of this name; the message lists those there are." },
  not_found: { retryable: false, meaning: "There is nothing at this path, or no object of this id." },
  method_not_allowed: {
    retryable: false,
    meaning: "The path does not take this method; `allow` lists those it takes.",
  },
  queue_full: {
    retryable: true,
    meaning:
      "As many requests as are allowed are waiting already, or their bodies or answers hold as much memory as they may.",
  },
  queue_timeout: { retryable: true, meaning: "The request waited longer than `queue_timeout_secs` for its turn." },
  mailbox_full: { retryable: true, meaning: "A part of the server has more to do than it may put off." },
  model_loading: { retryable: true, meaning: "The model is being loaded." },
  model_failed: { retryable: true, meaning: "The model failed while it answered, and is being started again." },
  draining: { retryable: true, meaning: "The server is shutting down and takes no new requests." },
  timeout: { retryable: true, meaning: "A part of the server did not answer in time." },
  peer_gone: { retryable: true, meaning: "A part of the server ended before the answer was whole." },
  reader_stalled: { retryable: true, meaning: "The client read too slowly for too long." },
  forbidden: {
    retryable: false,
    meaning: "The request came by a host name, or from a web page, that this server does not serve.",
  },
  storage_unavailable: {
    retryable: true,
    meaning: "The server's disk is full, or cannot be read or written now; nothing was kept or changed.",
  },
  cancelled: { retryable: false, meaning: "The request was cancelled before it was done." },
  metrics_disabled: { retryable: false, meaning: "Metrics are switched off on this server." },
  config_invalid: { retryable: false, meaning: "A setting is wrong; the message names it." },
  model_file_invalid: {
    retryable: false,
    meaning: "The model's file is damaged, or of a kind this server does not read.",
  },
  model_source_unreachable: { retryable: true, meaning: "The place the model is downloaded from cannot be reached." },
  invalid_lora_name: {
    retryable: false,
    meaning: "The name of an adapter is empty, longer than 256 bytes, or has characters that cannot be printed.",
  },
  invalid_lora_load_policy: {
    retryable: false,
    meaning: "The field `expected_generation` needs `load_inplace`.",
  },
  invalid_adapter_path: {
    retryable: false,
    meaning: "The path of an adapter is empty, or no path.",
  },
  invalid_adapter_file: {
    retryable: false,
    meaning: "A file of an adapter is no regular file.",
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
    meaning: "There is nothing at the path of an adapter.",
  },
  adapter_file_not_found: {
    retryable: false,
    meaning: "A file of an adapter is not there.",
  },
  lora_runtime_unavailable: {
    retryable: false,
    meaning: "The model takes no adapters; `enable_lora` lets it.",
  },
  lora_adapter_already_loaded: {
    retryable: false,
    meaning: "The name stands for an adapter already; `load_inplace` replaces it.",
  },
  lora_generation_mismatch: {
    retryable: false,
    meaning: "The name stands for another generation than `expected_generation`.",
  },
  lora_rank_limit_exceeded: {
    retryable: false,
    meaning: "The rank of the adapter is above `lora_max_rank`.",
  },
  lora_adapter_limit_exceeded: {
    retryable: false,
    meaning: "As many adapters as `lora_max_adapters` allows are loaded.",
  },
  lora_slot_space_exhausted: {
    retryable: false,
    meaning: "The engine can address no more memory for adapters; unload others first.",
  },
  lora_byte_limit_exceeded: {
    retryable: false,
    meaning: "With this one, the adapters would hold more than `lora_max_bytes`.",
  },
  lora_alias_limit_exceeded: {
    retryable: false,
    meaning: "As many names of adapters as are allowed are taken.",
  },
  adapter_file_changed: {
    retryable: false,
    meaning: "A file of the adapter changed while it was read.",
  },
  model_state_conflict: {
    retryable: false,
    meaning: "The model is not loaded, or is about to be unloaded.",
  },
  lora_adapter_file_too_large: {
    retryable: false,
    meaning: "A file of the adapter is larger than `lora_max_bytes` allows.",
  },
  invalid_lora_adapter: {
    retryable: false,
    meaning: "The files of the adapter are damaged, of a kind this server does not take, or made for another model.",
  },
  lora_load_busy: {
    retryable: true,
    meaning: "Another adapter is being loaded; they are loaded one at a time.",
  },
  invalid_lora_runtime: {
    retryable: false,
    meaning: "The model's own file cannot be read any more, so no adapter can be checked against it.",
  },
  lora_load_task_failed: {
    retryable: false,
    meaning: "Loading the adapter failed for a reason that nobody foresaw.",
  },
  adapter_storage_unavailable: {
    retryable: true,
    meaning: "The files of the adapter cannot be read now.",
  },
  lora_storage_unavailable: {
    retryable: true,
    meaning: "The server has no room on disk for the adapter.",
  },
  lora_device_load_failed: {
    retryable: true,
    meaning: "The engine has no room for the adapter, or could not take it.",
  },
  internal: {
    retryable: false,
    meaning: "Something went wrong that nobody foresaw; the server's log has it under the request id.",
  },
} as const;

export type ErrorCode = keyof typeof codes;

export const errorCodes = Object.keys(codes) as readonly ErrorCode[];

/** What a code means, in a sentence for the documents. */
export function errorMeaning(code: ErrorCode): string {
  return codes[code].meaning;
}

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
