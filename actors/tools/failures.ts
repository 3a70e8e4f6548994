// Failures of tool calls: creates the result text for the model if a call has failed or was not run.
import type { ServerToolResult } from "../api/agent/server-tools.ts";
import { boundedText } from "./bounded-text.ts";

/** Maximum number of bytes of the reason in a result. */
const MAX_ERROR_BYTES = 8192;

type FailedStatus = Exclude<ServerToolResult["status"], "success">;

export function failureText(error: string, status: FailedStatus = "error"): string {
  return JSON.stringify({ status, error: boundedText(error, MAX_ERROR_BYTES) });
}

/** Returns the result of a server tool that has failed. */
export function failedResult(status: FailedStatus, error: string): ServerToolResult {
  return { status, content: failureText(error, status), images: [] };
}
