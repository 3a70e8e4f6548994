// Call of a tool of the embedding program: the arguments are checked first, the call has a time limit, and an error of the tool is
// a result for the model.
import type { ServerToolCall, ServerToolResult } from "../../../actors/api/agent/server-tools.ts";
import { boundedText } from "../../../actors/tools/bounded-text.ts";
import type { Log } from "../../../http/observe/log.ts";
import { toErrorRecord } from "../../../runtime/errors.ts";
import type { CheckedSchema } from "./checked-schema.ts";
import { failedResult, resultOf } from "./result.ts";
import type { Tool, ToolContext } from "./tool.ts";

export const defaultTimeoutMs = 60_000;
/** Maximum number of bytes of the message of a progress report. */
const maxMessageBytes = 1024;

/** Runs a call. Never rejects. A tool that ignores its signal runs on after its time limit, and its result is dropped. */
export async function runTool(
  tool: Tool,
  schema: CheckedSchema,
  call: ServerToolCall,
  log: Pick<Log, "warn">,
): Promise<ServerToolResult> {
  const { name, timeoutMs = defaultTimeoutMs } = tool;
  const limit = AbortSignal.timeout(timeoutMs);
  const signal = AbortSignal.any([call.signal, limit]);
  try {
    return await Promise.race([aborted(signal), checkedRun()]);
  } catch (error) {
    if (call.signal.aborted) return failedResult("cancelled", "the call was cancelled");
    if (limit.aborted) return failedResult("timeout", `the tool took longer than ${timeoutMs} ms`);
    log.warn({ tool: name, err: error }, "a tool has failed; the model gets the message of the error");
    return failedResult("error", toErrorRecord(error).message);
  }

  async function checkedRun(): Promise<ServerToolResult> {
    const checked = await schema.check(call.arguments);
    if ("problem" in checked) return failedResult("error", checked.problem);
    const context = { session: call.session, signal, progress: progressOf(call, signal) };
    return resultOf(await tool.run(checked.args as never, context));
  }
}

/** Rejects when the signal is aborted. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const stop = (): void => reject(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
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
