// Message checks: inspects JSON-RPC messages before the MCP library parses them.
import { isInitializeRequest, isJSONRPCRequest } from "@modelcontextprotocol/server";
import { ServerError } from "../../runtime/errors.ts";

/** Maximum number of messages in a batch. Only older revisions of the protocol have batches. */
const MAX_BATCH = 100;

/** Throws `invalid_value` unless the value is a JSON-RPC message or a batch of messages. */
export function checkMessages(value: unknown): void {
  const messages = Array.isArray(value) ? value : [value];
  if (messages.length > 0 && messages.length <= MAX_BATCH && messages.every(isMessage)) return;
  throw new ServerError(
    "invalid_value",
    `expected a JSON-RPC 2.0 message, or 1 to ${MAX_BATCH} of them: {"jsonrpc":"2.0","id":…,"method":…}`,
  );
}

/**
 * Checks whether a message begins a session. Throws `invalid_value` for an invalid `initialize`, so that no existing session is
 * closed to make room for it.
 */
export function isInitialize(value: unknown): boolean {
  if (!isObject(value) || value.method !== "initialize") return false;
  if (isInitializeRequest(value) && isJSONRPCRequest(value)) return true;
  throw new ServerError(
    "invalid_value",
    "initialize expects an id, and the params protocolVersion, capabilities and clientInfo",
  );
}

/** Checks whether a message cancels a request. */
export function isCancellation(value: unknown): boolean {
  return isObject(value) && value.method === "notifications/cancelled";
}

/** Checks whether a message is a response to a request. */
export function isResponse(value: unknown): boolean {
  return isObject(value) && ("result" in value || "error" in value);
}

function isMessage(value: unknown): boolean {
  return isObject(value) && value.jsonrpc === "2.0" && (typeof value.method === "string" || isResponse(value));
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
