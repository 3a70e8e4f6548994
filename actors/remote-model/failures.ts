// Errors of requests to remote models. Their messages name the server, what it did and what to do.
import { UpstreamFailure } from "../../engines/remote/upstream.ts";
import { type ErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { Upstream } from "./upstream.ts";

const retryAfterSeconds = 1;

/** Returns the error of a request whose attempts have failed. `tokens`: number of tokens that the client has already received. */
export function attemptsFailed(
  url: string,
  { kind, message }: UpstreamFailure,
  attempts: number,
  tokens = 0,
): ServerError {
  if (kind === "busy") {
    const busy = `the server of the model (${url}) is busy (${message}); try again later`;
    return new ServerError("queue_full", busy, { retryAfterSeconds });
  }
  const key = kind === "key" ? "; check api_key_env" : "";
  const after = tokens > 0 ? ` after ${tokens} tokens` : attempts > 1 ? ` in attempt ${attempts}` : "";
  const text = `the server of the model (${url}) failed${after} (${kind}: ${message})${key}; the request can be retried`;
  return new ServerError("model_failed", text);
}

export function refusedByServer(url: string, { message }: UpstreamFailure): ServerError {
  return new ServerError("invalid_value", `the server of the model (${url}) refuses the request: ${message}`);
}

export function noServer(upstreams: readonly Pick<Upstream, "url" | "reason">[]): ServerError {
  const each = upstreams.map(({ url, reason }) => `${url} (${reason})`).join(", ");
  return new ServerError("model_failed", `no server of the model answers: ${each}; the request can be retried`, {
    retryAfterSeconds,
  });
}

export function queueTimeout(waitedMs: number): ErrorRecord {
  const message = `no server had room within ${seconds(waitedMs)} s (queue_timeout_secs); try again later`;
  return { code: "queue_timeout", message };
}

export function firstTokenTimeout(waitedMs: number): UpstreamFailure {
  return new UpstreamFailure("timeout", `no token within ${seconds(waitedMs)} s (first_token_timeout_secs)`);
}

export function stalled(waitedMs: number): UpstreamFailure {
  return new UpstreamFailure("timeout", `no further token within ${seconds(waitedMs)} s (stall_timeout_secs)`);
}

function seconds(ms: number): number {
  return Math.round(ms / 100) / 10;
}
