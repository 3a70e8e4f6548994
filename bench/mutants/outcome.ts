// Outcome of a mutant: whether it was read, refused by name, or ended the program that read it; everything else breaks a promise.
import type { ErrorCode } from "../../runtime/errors.ts";

export const kinds = ["images", "audio", "video", "onnx", "mmproj", "reload"] as const;
/** "reload": models of a server that is running. */
export type Kind = (typeof kinds)[number];

export type MediaKind = Extract<Kind, "images" | "audio" | "video">;

export interface Trials {
  readonly seed: number;
  /** Number of the first mutant, and number of mutants. */
  readonly first: number;
  readonly count: number;
}

export interface Outcome {
  readonly number: number;
  /** Names of the source and of the changes. */
  readonly name: string;
  /** "ended": the process that loads a model ended, which its server reports and restarts. */
  readonly result: "read" | "refused" | "ended" | "broken";
  /** The message, or what is wrong. */
  readonly detail: string;
  readonly ms: number;
}

const mediaCodes: readonly ErrorCode[] = ["invalid_value", "unsupported"];
const modelCodes: readonly ErrorCode[] = ["model_file_invalid", "unsupported", "model_failed", "invalid_value"];

/** Judges the error of a file that was refused. */
export function judged(kind: Kind, code: string, message: string): Pick<Outcome, "result" | "detail"> {
  const isModel = kind === "onnx" || kind === "mmproj";
  const codes: readonly string[] = isModel ? modelCodes : mediaCodes;
  const flaw = codes.includes(code) ? flawOf(message, isModel) : "an unexpected code";
  return flaw === null
    ? { result: "refused", detail: message }
    : { result: "broken", detail: `${flaw}: ${code}: ${message}` };
}

/** Returns what is wrong with a message for a client or an operator; null: nothing. */
function flawOf(message: string, isModel: boolean): string | null {
  if (message.length > 1200) return "a message that is too long";
  if (/\n|\bat \S+ \(|node_modules|\[object |<---/.test(message)) return "a message with inner details";
  if (!isModel && /\/tmp\//.test(message)) return "a message with a path of the server";
  if (!isModel && !/expected|at most|send /.test(message)) return "a message that does not say what to do";
  return null;
}
