// HTTP errors: status, type and Retry-After of each error code, and the common error body. A protocol with a different error
// body defines its own ErrorFormat; no other code in http/ builds error bodies.
import { z } from "zod";
import { type ErrorCode, type ErrorRecord, errorCodes } from "../runtime/errors.ts";
import type { ReplyHeaders } from "./server/edge.ts";

interface WireRule {
  readonly status: number;
  /** Seconds after which a retry may succeed. */
  readonly retryAfterSeconds?: number;
  /** Value of the www-authenticate header, which every 401 response has. */
  readonly challenge?: string;
}

const rules: Readonly<Record<ErrorCode, WireRule>> = {
  invalid_json: { status: 400 },
  invalid_content_type: { status: 415 },
  invalid_request: { status: 400 },
  headers_too_large: { status: 431 },
  request_timeout: { status: 408, retryAfterSeconds: 1 },
  body_too_large: { status: 413 },
  invalid_value: { status: 400 },
  unsupported: { status: 400 },
  conflict: { status: 409 },
  context_length_exceeded: { status: 400 },
  invalid_api_key: { status: 401, challenge: "Bearer" },
  model_not_found: { status: 404 },
  forbidden: { status: 403 },
  not_found: { status: 404 },
  file_not_found: { status: 404 },
  file_elided: { status: 410 },
  file_not_produced: { status: 422 },
  session_not_found: { status: 404 },
  skill_not_found: { status: 404 },
  previous_response_not_found: { status: 404 },
  websocket_connection_limit_reached: { status: 400 },
  method_not_allowed: { status: 405 },
  queue_full: { status: 429, retryAfterSeconds: 1 },
  queue_timeout: { status: 503, retryAfterSeconds: 5 },
  mailbox_full: { status: 429, retryAfterSeconds: 1 },
  model_loading: { status: 503, retryAfterSeconds: 2 },
  draining: { status: 503, retryAfterSeconds: 5 },
  timeout: { status: 503, retryAfterSeconds: 1 },
  storage_unavailable: { status: 503, retryAfterSeconds: 10 },
  cancelled: { status: 503, retryAfterSeconds: 1 },
  metrics_disabled: { status: 503 },
  model_source_unreachable: { status: 503, retryAfterSeconds: 10 },
  model_failed: { status: 503, retryAfterSeconds: 1 },
  peer_gone: { status: 503, retryAfterSeconds: 1 },
  reader_stalled: { status: 503, retryAfterSeconds: 1 },
  config_invalid: { status: 500 },
  model_file_invalid: { status: 500 },
  tuning_failed: { status: 500 },
  invalid_lora_name: { status: 400 },
  invalid_lora_load_policy: { status: 400 },
  invalid_adapter_path: { status: 400 },
  invalid_adapter_file: { status: 400 },
  adapter_path_forbidden: { status: 403 },
  adapter_file_forbidden: { status: 403 },
  lora_adapter_not_found: { status: 404 },
  adapter_path_not_found: { status: 404 },
  adapter_file_not_found: { status: 404 },
  lora_runtime_unavailable: { status: 409 },
  lora_adapter_already_loaded: { status: 409 },
  lora_generation_mismatch: { status: 409 },
  lora_rank_limit_exceeded: { status: 409 },
  lora_adapter_limit_exceeded: { status: 409 },
  lora_slot_space_exhausted: { status: 409 },
  lora_byte_limit_exceeded: { status: 409 },
  lora_alias_limit_exceeded: { status: 409 },
  adapter_file_changed: { status: 409 },
  model_state_conflict: { status: 409 },
  lora_adapter_file_too_large: { status: 413 },
  invalid_lora_adapter: { status: 422 },
  lora_load_busy: { status: 429, retryAfterSeconds: 1 },
  invalid_lora_runtime: { status: 500 },
  lora_load_task_failed: { status: 500 },
  adapter_storage_unavailable: { status: 503, retryAfterSeconds: 1 },
  lora_storage_unavailable: { status: 503, retryAfterSeconds: 1 },
  lora_device_load_failed: { status: 503, retryAfterSeconds: 1 },
  internal: { status: 500 },
};

export function statusOf(code: ErrorCode): number {
  return rules[code].status;
}

/** Returns the response headers of an error. */
export function errorHeaders(error: ErrorRecord): ReplyHeaders {
  const { challenge, retryAfterSeconds } = rules[error.code];
  const seconds = error.retryAfterSeconds ?? retryAfterSeconds;
  return {
    ...(challenge === undefined ? {} : { "www-authenticate": challenge }),
    ...(seconds === undefined ? {} : { "retry-after": String(seconds) }),
  };
}

/** Returns `{"error":{…}}`: the body of a failed response, or the data of the last event of a failed stream. */
export function errorBody(error: ErrorRecord): string {
  const { code, message, param } = error;
  return JSON.stringify({ error: { message, type: typeOf(statusOf(code)), param: param ?? null, code } });
}

/** Error format of one protocol. */
export interface ErrorFormat {
  statusOf(code: ErrorCode): number;
  /** Returns the name of an error code in this protocol. Absent if the protocol uses the codes as names. */
  nameOf?(code: ErrorCode): string;
  /** Builds the body of a failed response. */
  body(error: ErrorRecord, requestId: string): string;
  /** Schema of the error body; it needs an id for references in the API document. */
  readonly schema: z.ZodType;
  /** Name of an additional response header with the request id, sent together with x-request-id. */
  readonly requestIdHeader?: string;
}

/** Returns the names of the response headers that carry the request id. */
export function requestIdHeaders({ requestIdHeader: vendors }: ErrorFormat): readonly string[] {
  return vendors === undefined ? commonIdHeaders : [...commonIdHeaders, vendors];
}

const commonIdHeaders: readonly string[] = ["x-request-id"];

const errorEnvelope = z
  .strictObject({
    error: z.strictObject({
      message: z.string().meta({ description: "What was expected, what was received, and what to do." }),
      type: z.enum(["invalid_request_error", "rate_limit_error", "server_error"]),
      param: z.string().nullable().meta({ description: "The field or parameter at fault." }),
      code: z.enum(errorCodes),
    }),
  })
  .meta({ id: "Error" });

export const commonErrors: ErrorFormat = { statusOf, body: errorBody, schema: errorEnvelope };

/** Returns whether responses with this error code have a Retry-After header. */
export function saysWhenToRetry(code: ErrorCode): boolean {
  return rules[code].retryAfterSeconds !== undefined;
}

function typeOf(status: number): string {
  if (status === 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}
