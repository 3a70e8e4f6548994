// Results of tool calls: what the model reads, and the data of the progress event.
import type { FileToStore } from "../api/agent/files.ts";
import type { ToolOutcome } from "../api/agent/tools.ts";
import { boundedText } from "./bounded-text.ts";
import type { CellResult } from "./python/interpreter.ts";
import type { CommandResult } from "./shell.ts";

/** Maximum number of characters of one output in the result that the model reads. */
const MAX_MODEL_OUTPUT = 12_000;

/** Files that a call has produced. */
export interface Produced {
  readonly files: readonly FileToStore[];
  readonly omitted: number;
}

export function cellOutcome(
  {
    cell,
    note,
    workFolder,
    code,
  }: { readonly cell: CellResult; readonly note: string | null; readonly workFolder: string; readonly code: string },
  produced: Produced,
): ToolOutcome {
  const { stdout, stderr, result, resultType, exception, images, frames, ms, isTimeout } = cell;
  const status = isTimeout ? "timeout" : exception === null ? "success" : "error";
  const time = Math.round(ms * 10) / 10;
  const model = {
    status,
    working_directory: workFolder,
    stdout: boundedText(stdout, MAX_MODEL_OUTPUT),
    stderr: boundedText(stderr, MAX_MODEL_OUTPUT),
    result: result === null ? null : boundedText(result, MAX_MODEL_OUTPUT),
    result_type: resultType,
    exception: exception === null ? null : boundedText(exception, MAX_MODEL_OUTPUT),
    execution_time_ms: time,
    ...(images.length + frames.length === 0 ? {} : { images_generated: images.length + frames.length }),
    ...(note === null ? {} : { note }),
    ...omission(produced),
  };
  const data = {
    status,
    code,
    stdout,
    stderr,
    result,
    exception,
    working_directory: workFolder,
    execution_time_ms: time,
  };
  return { status, content: JSON.stringify(model), data, images, videoFrames: frames, files: produced.files };
}

export function commandsOutcome(
  {
    commands,
    results,
    workFolder,
  }: { readonly commands: readonly string[]; readonly results: readonly CommandResult[]; readonly workFolder: string },
  produced: Produced,
): ToolOutcome {
  const last = results.at(-1);
  const hasTimedOut = results.some(({ outcome }) => outcome.type === "timeout");
  const exitCode = last?.outcome.type === "exit" ? last.outcome.exit_code : null;
  const limits = results.flatMap(({ limit }) =>
    limit === null ? [] : [`a command exceeded the limit of ${limit} and was ended`],
  );
  const hasFailed = results.some(({ outcome }) => outcome.type === "exit" && outcome.exit_code !== 0);
  const status = hasTimedOut ? "timeout" : hasFailed ? "error" : "success";
  const stdout = joined(results.map((result) => result.stdout));
  const stderr = joined([...results.map((result) => result.stderr), ...limits]);
  const shared = { status, working_directory: workFolder, exit_code: exitCode, timed_out: hasTimedOut } as const;
  const model = {
    ...shared,
    stdout: boundedText(stdout, MAX_MODEL_OUTPUT),
    stderr: boundedText(stderr, MAX_MODEL_OUTPUT),
    ...omission(produced),
  };
  const output = results.map(({ stdout: out, stderr: err, outcome }) => ({ stdout: out, stderr: err, outcome }));
  const data = { ...shared, commands, stdout, stderr, output };
  return { status, content: JSON.stringify(model), data, images: [], videoFrames: [], files: produced.files };
}

export function plainOutcome(result: Readonly<Record<string, unknown>>, produced: Produced): ToolOutcome {
  const model = { ...result, ...omission(produced) };
  return {
    status: "success",
    content: JSON.stringify(model),
    data: model,
    images: [],
    videoFrames: [],
    files: produced.files,
  };
}

/** Outcome of a call that could not be run. */
export function failedOutcome(message: string): ToolOutcome {
  const result = { status: "error", exception: message } as const;
  return { status: "error", content: JSON.stringify(result), data: result, images: [], videoFrames: [], files: [] };
}

/** Outputs of several commands, each on lines of its own. */
function joined(texts: readonly string[]): string {
  return texts
    .filter((text) => text !== "")
    .reduce((all, text) => (all === "" || all.endsWith("\n") ? all + text : `${all}\n${text}`), "");
}

function omission({ omitted }: Produced): object {
  return omitted === 0
    ? {}
    : { note_on_files: `${omitted} more changed files were not surfaced; name them in outputs` };
}
