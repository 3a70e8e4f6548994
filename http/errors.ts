// Owns how an error looks on the wire: code -> status, type and Retry-After, in the one envelope. Nothing else in http/
// builds an error body; the messages protocol will bring a shape of its own.
import type { ErrorCode, ErrorRecord } from "../runtime/errors.ts";
import type { ReplyHeaders } from "./edge.ts";

interface WireRule {
  readonly status: number;
  /** Seconds after which trying again may help. */
  readonly retryAfterSeconds?: number;
}

const rules: Readonly<Record<ErrorCode, WireRule>> = {
  invalid_json: { status: 400 },
  invalid_content_type: { status: 415 },
  body_too_large: { status: 413 },
  invalid_value: { status: 422 },
  unsupported: { status: 422 },
  conflict: { status: 409 },
  context_length_exceeded: { status: 422 },
  model_not_found: { status: 404 },
  not_found: { status: 404 },
  method_not_allowed: { status: 405 },
  queue_full: { status: 429, retryAfterSeconds: 1 },
  queue_timeout: { status: 503, retryAfterSeconds: 5 },
  mailbox_full: { status: 429, retryAfterSeconds: 1 },
  model_loading: { status: 503, retryAfterSeconds: 2 },
  draining: { status: 503, retryAfterSeconds: 5 },
  timeout: { status: 503, retryAfterSeconds: 1 },
  cancelled: { status: 503, retryAfterSeconds: 1 },
  metrics_disabled: { status: 503 },
  model_source_unreachable: { status: 503, retryAfterSeconds: 10 },
  model_failed: { status: 500 },
  peer_gone: { status: 500 },
  reader_stalled: { status: 500 },
  config_invalid: { status: 500 },
  model_file_invalid: { status: 500 },
  internal: { status: 500 },
};

export function statusOf(code: ErrorCode): number {
  return rules[code].status;
}

/** Headers an error adds to its answer. */
export function errorHeaders(error: ErrorRecord): ReplyHeaders {
  const seconds = error.retryAfterSeconds ?? rules[error.code].retryAfterSeconds;
  return seconds === undefined ? {} : { "retry-after": String(seconds) };
}

/** `{"error":{…}}`: the body of an answer that failed, and the last data of a stream that did. */
export function errorBody(error: ErrorRecord): string {
  const { code, message, param } = error;
  return JSON.stringify({ error: { message, type: typeOf(statusOf(code)), param: param ?? null, code } });
}

function typeOf(status: number): string {
  if (status === 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}
