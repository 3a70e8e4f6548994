// Speech models: determines which engine a path belongs to, and opens the model. Called by cli/ to choose the engine, and by the place
// (thread or process) that runs the model, to load it.
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import type { SpeechEngineName, SpeechModel, SpeechSpec, SpeechTask } from "./speech.ts";
import { kokoroFilesIn, kokoroLayout } from "./voices/kokoro/files.ts";

/** Path that stands for espeak-ng's own voices, which need no model files. */
export const espeakSource = "espeak-ng";

const layouts =
  `"${espeakSource}", a Piper voice (NAME.onnx beside NAME.onnx.json), or a folder with a Kokoro model (${kokoroLayout}) ` +
  "or a Whisper model (config.json, tokenizer.json, onnx/) in ONNX";

/**
 * Returns the engine and the task of the speech model at `path`. Throws `model_file_invalid` if there is no speech model, and `unsupported`
 * for a dialogue model (Dia). The error message lists the accepted files.
 */
export function identifySpeech(path: string): { readonly engine: SpeechEngineName; readonly task: SpeechTask } {
  if (path === espeakSource) return { engine: "espeak", task: "speak" };
  const state = statSync(path, { throwIfNoEntry: false });
  if (state === undefined) throw invalid(path, "which does not exist");
  if (state.isFile()) {
    if (!path.endsWith(".onnx")) throw invalid(path, "a file of another kind");
    if (!existsSync(`${path}.json`)) throw invalid(path, `a file without its description "${path}.json"`);
    return { engine: "piper", task: "speak" };
  }
  const kind = modelType(join(path, "config.json"));
  if (kind === "whisper") return { engine: "whisper", task: "transcribe" };
  if (kind !== null && isDialogue(kind)) throw refused(path, kind);
  if (kokoroFilesIn(path) !== null) return { engine: "kokoro", task: "speak" };
  throw invalid(path, kind === null ? "a folder with none of these" : `a model of type "${kind}"`);
}

/** Whether a folder has the files of a speech model. Also true for models that identifySpeech() refuses with a specific error. */
export function hasSpeechModel(folder: string): boolean {
  const kind = modelType(join(folder, "config.json"));
  return kind === "whisper" || (kind !== null && isDialogue(kind)) || kokoroFilesIn(folder) !== null;
}

export async function openSpeech(spec: SpeechSpec): Promise<SpeechModel> {
  switch (spec.engine) {
    case "piper":
      return { task: "speak", model: await (await import("./voices/piper.ts")).openPiper(spec) };
    case "kokoro":
      return { task: "speak", model: await (await import("./voices/kokoro/kokoro.ts")).openKokoro(spec) };
    case "espeak":
      return { task: "speak", model: await (await import("./voices/espeak.ts")).openEspeak() };
    case "whisper":
      return { task: "transcribe", model: await (await import("./whisper/whisper.ts")).openWhisper(spec) };
  }
}

/** Returns `model_type` or the first architecture of a config.json; null if there is none. */
function modelType(path: string): string | null {
  try {
    const config = JSON.parse(readFileSync(path, "utf8")) as { model_type?: unknown; architectures?: unknown[] };
    const named = config.model_type ?? config.architectures?.[0];
    return typeof named === "string" ? named : null;
  } catch {
    return null;
  }
}

/** Whether a type or an architecture is that of a Dia model: dia, DiaForConditionalGeneration, dia2. */
function isDialogue(kind: string): boolean {
  return /^dia\d?(?:\b|For)/i.test(kind);
}

function invalid(path: string, got: string): ServerError {
  const message = `kind = "speech" expects ${layouts}; got "${path}", ${got}`;
  return new ServerError("model_file_invalid", message, { param: "model_id" });
}

function refused(path: string, kind: string): ServerError {
  const message = `"${path}" is a dialogue model (${kind}), which is not supported; kind = "speech" expects ${layouts}`;
  return new ServerError("unsupported", message, { param: "model_id" });
}
