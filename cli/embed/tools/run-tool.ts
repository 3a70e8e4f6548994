// Runs a tool of the embedding program: checks the arguments first, enforces the time limit, and converts an error of the tool
// to a result for the model.
import type { ServerToolCall, ServerToolResult } from "../../../actors/api/agent/server-tools.ts";
import { boundedText } from "../../../actors/tools/bounded-text.ts";
import { failedResult } from "../../../actors/tools/failures.ts";
import type { Log } from "../../../http/observe/log.ts";
import { toErrorRecord } from "../../../runtime/errors.ts";
import type { CheckedSchema } from "./checked-schema.ts";
import { resultOf } from "./result.ts";
import type { Tool, ToolContext } from "./tool.ts";

export const defaultTimeoutMs = 60_000;
/** Maximum size in bytes of the message in a progress report. */
const maxMessageBytes = 1024;

/**
 * Runs a call. Never rejects. A tool that ignores its signal continues after its time limit, and its result is dropped.
 */
export async function runTool(
  tool: Tool,
  schema: CheckedSchema,
  call: ServerToolCall,
  log: Pick<Log, "warn">,
): Promise<ServerToolResult> {
  const limit = limitOf(call, tool.timeoutMs ?? defaultTimeoutMs);
  try {
    return await Promise.race([limit.passed, run(tool, schema, call, limit.signal)]);
  } catch (error) {
    log.warn({ tool: tool.name, err: error }, "a tool has failed; the model gets the message of the error");
    return failedResult("error", toErrorRecord(error).message);
  } finally {
    limit.release();
  }
}

async function run(
  tool: Tool,
  schema: CheckedSchema,
  call: ServerToolCall,
  signal: AbortSignal,
): Promise<ServerToolResult> {
  const checked = await schema.check(call.arguments);
  if ("problem" in checked) return failedResult("error", checked.problem);
  const context = { session: call.session, signal, progress: progressOf(call, signal) };
  return resultOf(await tool.run(checked.args as never, context));
}

interface Limit {
  /** Aborted when the call is cancelled or has reached its time limit. */
  readonly signal: AbortSignal;
  /** Resolves with the result of the call when the signal is aborted. */
  readonly passed: Promise<ServerToolResult>;
  release(): void;
}

/**
 * Starts the time limit of a call. Does not use AbortSignal.any, because its signals are not freed while they have a listener.
 */
function limitOf({ signal: cancelled }: ServerToolCall, timeoutMs: number): Limit {
  const stop = new AbortController();
  const { signal } = stop;
  // This listener is added before the tool adds its own listeners, so that the call ends with this result and not with an error
  // of the aborted tool.
  const passed = new Promise<ServerToolResult>((resolve) => {
    signal.addEventListener("abort", () => resolve(stoppedResult(cancelled.aborted, timeoutMs)), { once: true });
  });
  const end = (): void => stop.abort();
  const timer = setTimeout(end, timeoutMs);
  cancelled.addEventListener("abort", end, { once: true });
  if (cancelled.aborted) end();
  const release = (): void => {
    clearTimeout(timer);
    cancelled.removeEventListener("abort", end);
  };
  return { signal, passed, release };
}

function stoppedResult(isCancelled: boolean, timeoutMs: number): ServerToolResult {
  if (isCancelled) return failedResult("cancelled", "the call was cancelled");
  return failedResult("timeout", `the tool took longer than ${timeoutMs} ms`);
}

function progressOf({ onProgress }: ServerToolCall, signal: AbortSignal): ToolContext["progress"] {
  return ({ progress, total, message }) => {
    if (!Number.isFinite(progress)) throw new TypeError(`progress expects a number; got ${progress}`);
    if (signal.aborted) return;
    onProgress({
      progress,
      total: total ?? null,
      message: message === undefined ? null : boundedText(message, maxMessageBytes),
    });
  };
}
