// Dispatch of custom tools: the server POSTs a call to the URL of the setting tool_dispatch_url and uses the response as the
// result of the call.
import { createHmac } from "node:crypto";
import type { ToolCall } from "../../../engines/generation.ts";
import type { Clock } from "../../../runtime/clock.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { jsonOrText } from "../../../runtime/json-or-text.ts";
import { patientFetch } from "../../../runtime/web/patient-fetch.ts";

export interface DispatchSettings {
  readonly url: string;
  /** Time limit of one attempt in milliseconds. */
  readonly timeoutMs: number;
  /** Key of the request signature; null = requests are not signed. */
  readonly secret: string | null;
}

/**
 * Runs a custom tool and returns its result as text for the model. Rejects with the reason of a failure. `key`: idempotency key
 * of the call.
 */
export type Dispatch = (call: ToolCall, key: string, signal: AbortSignal) => Promise<string>;

/** Maximum number of attempts. A call is retried after a connection error or a status in retriedStatuses, but not after a timeout. */
const maxAttempts = 3;
const retryDelayMs = 250;
const maxReplyBytes = 1024 * 1024;
const retriedStatuses: ReadonlySet<number> = new Set([408, 425, 429, 502, 503, 504]);

export function createDispatch(settings: DispatchSettings, clock: Clock): Dispatch {
  return async (call, key, signal) => {
    const body = JSON.stringify({ name: call.name, arguments: jsonOrText(call.arguments) });
    for (let attempt = 1; ; attempt++) {
      const reply = await attempted(settings, body, key, signal);
      if (reply.isOk) return resultOf(reply.text);
      if (!reply.mayRetry || attempt === maxAttempts || signal.aborted) throw reply.error;
      await new Promise<void>((resolve) => void clock.setTimeout(resolve, retryDelayMs * 2 ** (attempt - 1)));
    }
  };
}

type Reply =
  | { readonly isOk: true; readonly text: string }
  | { readonly isOk: false; readonly error: ServerError; readonly mayRetry: boolean };

async function attempted(
  { url, timeoutMs, secret }: DispatchSettings,
  body: string,
  key: string,
  signal: AbortSignal,
): Promise<Reply> {
  const seconds = Math.floor(Date.now() / 1000);
  const headers: Record<string, string> = {
    "content-type": "application/json",
    // All attempts of a call have the same key, so that the receiver can recognise a repeated attempt.
    "idempotency-key": key,
    ...(secret === null ? {} : { "x-troupe-signature": signature(secret, seconds, body) }),
  };
  try {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    const response = await patientFetch(url, { method: "POST", headers, body, signal: limit, redirect: "error" });
    const text = await bounded(response);
    if (text === null) return failed(`the reply is larger than ${maxReplyBytes} bytes`, false);
    if (response.ok) return { isOk: true, text };
    return failed(`status ${response.status}: ${text.slice(0, 1000)}`, retriedStatuses.has(response.status));
  } catch (error) {
    if (signal.aborted) return failed("the request was cancelled", false);
    const isLate = error instanceof Error && error.name === "TimeoutError";
    return failed(isLate ? `no reply within ${timeoutMs} ms` : `no connection: ${causeOf(error)}`, !isLate);
  }
}

/** Returns the signature of a body: `t=<Unix seconds>,v1=<HMAC-SHA256 of "<seconds>.<body>" in hex>`. */
export function signature(secret: string, seconds: number, body: string): string {
  return `t=${seconds},v1=${createHmac("sha256", secret).update(`${seconds}.${body}`).digest("hex")}`;
}

/** Reads the body of a response as text; returns null if the body is larger than maxReplyBytes. */
async function bounded(response: Response): Promise<string | null> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.byteLength;
    if (size > maxReplyBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

function failed(message: string, mayRetry: boolean): Reply {
  return { isOk: false, error: new ServerError("peer_gone", message), mayRetry };
}

function causeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? error.cause.message : error.message;
}

/** Returns the result for the model: the text of a response {"content": text} or of a JSON string; any other response unchanged. */
function resultOf(text: string): string {
  const value = jsonOrText(text);
  if (typeof value === "string") return value;
  const content = typeof value === "object" && value !== null ? (value as { content?: unknown }).content : undefined;
  return typeof content === "string" ? content : text;
}
