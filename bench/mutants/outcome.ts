// Outcome of a mutant (damaged file): the file was read, it was rejected with an error code, or it ended the process that
// loaded it. Every other outcome is a violation ("broken").
import type { ErrorCode } from "../../runtime/errors.ts";

export const kinds = ["images", "audio", "video", "onnx", "mmproj", "reload"] as const;
/** Kind of the damaged files. "reload": files of a model that a running server reloads. */
export type Kind = (typeof kinds)[number];

export type MediaKind = Extract<Kind, "images" | "audio" | "video">;

export interface Trials {
  readonly seed: number;
  /** Number of the first mutant; `count`: number of mutants. */
  readonly first: number;
  readonly count: number;
}

export interface Outcome {
  readonly number: number;
  /** Names of the original file and of the changes to it. */
  readonly name: string;
  /** "ended": the process that loaded the model crashed. A server would report this and restart the process. */
  readonly result: "read" | "refused" | "ended" | "broken";
  /** Error message of a rejected file, or description of the violation; "" if the file was read. */
  readonly detail: string;
  readonly ms: number;
}

const mediaCodes: readonly ErrorCode[] = ["invalid_value", "unsupported"];
const modelCodes: readonly ErrorCode[] = ["model_file_invalid", "unsupported", "model_failed", "invalid_value"];

/** Judges the error with which a file was rejected: its code and its message must be suitable for a client or an operator. */
export function judged(kind: Kind, code: string, message: string): Pick<Outcome, "result" | "detail"> {
  const isModel = kind === "onnx" || kind === "mmproj";
  const codes: readonly string[] = isModel ? modelCodes : mediaCodes;
  const flaw = codes.includes(code) ? flawOf(message, isModel) : "an unexpected code";
  return flaw === null
    ? { result: "refused", detail: message }
    : { result: "broken", detail: `${flaw}: ${code}: ${message}` };
}

/** Returns a description of what is wrong with an error message; null if nothing is wrong. */
function flawOf(message: string, isModel: boolean): string | null {
  if (message.length > 1200) return "a message that is too long";
  if (/\n|\bat \S+ \(|node_modules|\[object |<---/.test(message)) return "a message with inner details";
  if (!isModel && /\/tmp\//.test(message)) return "a message with a path of the server";
  if (!isModel && !/expected|at most|send /.test(message)) return "a message that does not say what to do";
  return null;
}
