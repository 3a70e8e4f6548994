// Owns what of a JSON-RPC message is looked at before the protocol's own implementation reads it.
import { ServerError } from "../../runtime/errors.ts";

/** Most messages of a batch, which older revisions of the protocol have. */
const MAX_BATCH = 100;

/** Throws `invalid_value` for what is neither a message nor a batch of them. */
export function checkMessages(value: unknown): void {
  const messages = Array.isArray(value) ? value : [value];
  if (messages.length > 0 && messages.length <= MAX_BATCH && messages.every(isMessage)) return;
  throw new ServerError(
    "invalid_value",
    `expected a JSON-RPC 2.0 message, or 1 to ${MAX_BATCH} of them: {"jsonrpc":"2.0","id":…,"method":…}`,
  );
}

export function isInitialize(value: unknown): boolean {
  return isObject(value) && value.method === "initialize";
}

/** Whether a message answers a request. */
export function isResponse(value: unknown): boolean {
  return isObject(value) && ("result" in value || "error" in value);
}

function isMessage(value: unknown): boolean {
  return isObject(value) && value.jsonrpc === "2.0" && (typeof value.method === "string" || isResponse(value));
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
