// Results of tool calls: the text for the model, and the data of the progress event.
import { maxResultBytes, type ToolOutcome } from "../api/agent/tools.ts";
import { type BoundedText, boundedText } from "./bounded-text.ts";
import { failureText } from "./failures.ts";
import type { Produced } from "./files/outputs.ts";
import { maxOutputBytes } from "./process-output.ts";
import type { CellResult } from "./python/interpreter.ts";
import type { CommandResult } from "./shell.ts";

/** Maximum number of bytes of one output in the result for the model. */
const MAX_MODEL_OUTPUT = 12_000;

export const noFiles: Produced = { files: [], notes: [] };

interface RanCell {
  readonly cell: CellResult;
  readonly note: string | null;
  readonly workFolder: string;
  readonly code: string;
}

export function cellOutcome({ cell, note, workFolder, code }: RanCell, produced: Produced): ToolOutcome {
  const { stdout, stderr, result, resultType, exception, images, frames, picturesLeftOut, ms, isTimeout } = cell;
  const status = isTimeout ? "timeout" : exception === null ? "success" : "error";
  const fields = (limit: number) => ({
    status,
    working_directory: workFolder,
    stdout: stdout.within(limit),
    stderr: stderr.within(limit),
    result: result === null ? null : boundedText(result, limit),
    result_type: resultType,
    exception: exception === null ? null : boundedText(exception, limit),
    execution_time_ms: Math.round(ms * 10) / 10,
  });
  const pictures = images.length + frames.length;
  const model = (limit: number) => ({
    ...fields(limit),
    ...(pictures === 0 ? {} : { images_generated: pictures }),
    ...(picturesLeftOut === 0 ? {} : { images_left_out: picturesLeftOut }),
    ...(note === null ? {} : { note }),
    ...notesOn(produced),
  });
  const { result_type: _, ...shown } = fields(maxOutputBytes);
  return {
    status,
    content: contentOf(model),
    data: { ...shown, code },
    images,
    videoFrames: frames,
    files: produced.files,
  };
}

interface RanCommands {
  readonly commands: readonly string[];
  readonly results: readonly CommandResult[];
  readonly workFolder: string;
  /** Limit in bytes that the model set for stdout, and for stderr, of all commands together; null = use the tool's own limit. */
  readonly maxOutput: number | null;
}

export function commandsOutcome(
  { commands, results, workFolder, maxOutput }: RanCommands,
  produced: Produced,
): ToolOutcome {
  const last = results.at(-1);
  const hasTimedOut = results.some(({ outcome }) => outcome.type === "timeout");
  const exitCode = last?.outcome.type === "exit" ? last.outcome.exit_code : null;
  const hasFailed = results.some(({ outcome }) => outcome.type === "exit" && outcome.exit_code !== 0);
  const status = hasTimedOut ? "timeout" : hasFailed ? "error" : "success";
  const shared = { status, working_directory: workFolder, exit_code: exitCode, timed_out: hasTimedOut } as const;
  // The commands of a call share the limit equally.
  const each = (limit: number): number => Math.floor(Math.min(limit, maxOutput ?? limit) / Math.max(1, results.length));
  const outputs = (limit: number) =>
    results.map((result) => ({ stdout: textOf(result.stdout, limit), stderr: errorsOf(result, limit) }));
  const joined = (limit: number) => {
    const texts = outputs(each(limit));
    return { stdout: lines(texts.map(({ stdout }) => stdout)), stderr: lines(texts.map(({ stderr }) => stderr)) };
  };
  const output = outputs(each(maxOutputBytes)).map((texts, i) => ({ ...texts, outcome: results[i]?.outcome }));
  return {
    status,
    content: contentOf((limit) => ({ ...shared, ...joined(limit), ...notesOn(produced) })),
    data: { ...shared, commands, ...joined(maxOutputBytes), output },
    images: [],
    videoFrames: [],
    files: produced.files,
  };
}

function textOf(text: BoundedText | null, limit: number): string {
  return text === null ? "" : text.within(limit);
}

/** Returns the stderr of a command. If the command was killed or not run, the reason is added. */
function errorsOf({ stderr, limit }: CommandResult, maxBytes: number): string {
  if (stderr === null) return "not run: the time limit of the call was reached\n";
  return lines([stderr.within(maxBytes), ...(limit === null ? [] : [`ended: it exceeded the limit of ${limit}\n`])]);
}

export function plainOutcome(result: Readonly<Record<string, unknown>>, produced: Produced): ToolOutcome {
  const model = { ...result, ...notesOn(produced) };
  return { ...made(model), status: "success", files: produced.files };
}

/** Returns the outcome of a call that could not be run. */
export function failedOutcome(message: string): ToolOutcome {
  const content = failureText(message);
  return { ...made({}), status: "error", content, data: { status: "error", content } };
}

export function cancelledOutcome(): ToolOutcome {
  return { ...made({ status: "cancelled" }), status: "cancelled" };
}

function made(model: Readonly<Record<string, unknown>>): Omit<ToolOutcome, "status"> {
  return { content: JSON.stringify(model), data: model, images: [], videoFrames: [], files: [] };
}

/**
 * Returns a result as JSON of at most maxResultBytes bytes. Escaping makes JSON longer than its texts, so the texts are shortened
 * until the JSON fits.
 */
function contentOf(fields: (limit: number) => object): string {
  for (let limit = MAX_MODEL_OUTPUT; ; limit = Math.floor(limit / 2)) {
    const content = JSON.stringify(fields(limit));
    if (limit < 2 || Buffer.byteLength(content) <= maxResultBytes) return content;
  }
}

/** Joins the outputs of several commands. Each output begins on a new line. */
function lines(texts: readonly string[]): string {
  return texts
    .filter((text) => text !== "")
    .reduce((all, text) => (all === "" || all.endsWith("\n") ? all + text : `${all}\n${text}`), "");
}

function notesOn({ notes }: Produced): object {
  return notes.length === 0 ? {} : { note_on_files: notes.join(". ") };
}
