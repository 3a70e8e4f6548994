// ONNX Runtime: loads the optional package onnxruntime-node, and opens sessions with a bounded number of threads that do not spin
// between passes, because text models compute on the same cores.
import type { InferenceSession, Tensor } from "onnxruntime-node";
import { inOneLine, ServerError } from "../../runtime/errors.ts";
import { installCommand, isInstalled } from "../../runtime/host/optional-packages.ts";

export const onnxPackage = "onnxruntime-node";

export type Onnx = typeof import("onnxruntime-node");
export type OnnxSession = InferenceSession;
export type OnnxTensor = Tensor;

/** Returns why models in ONNX cannot be loaded on this machine, with the command that helps; null if they can. */
export function missingOnnx(): string | null {
  if (isInstalled(onnxPackage)) return null;
  return `models in ONNX need the package ${onnxPackage}, which is not installed: ${installCommand([onnxPackage])}`;
}

/** Loads the library. Throws `unsupported` if it is not installed or does not load. */
export async function loadOnnx(): Promise<Onnx> {
  const missing = missingOnnx();
  if (missing !== null) throw new ServerError("unsupported", missing);
  try {
    return await import("onnxruntime-node");
  } catch (error) {
    throw new ServerError("unsupported", `the package ${onnxPackage} does not load here: ${reasonOf(error)}`);
  }
}

/** Opens a model file. Throws `model_file_invalid`. */
export async function openSession(onnx: Onnx, path: string, threads: number): Promise<OnnxSession> {
  try {
    return await onnx.InferenceSession.create(path, {
      executionProviders: ["cpu"],
      intraOpNumThreads: threads,
      interOpNumThreads: 1,
      executionMode: "sequential",
      logSeverityLevel: 3,
      extra: { session: { intra_op: { allow_spinning: "0" } } },
    });
  } catch (error) {
    throw new ServerError(
      "model_file_invalid",
      `"${path}" is not an ONNX model that can be loaded: ${reasonOf(error)}`,
    );
  }
}

/**
 * Runs a session. `outputs`: names of the outputs to compute; absent = all. Throws `model_failed`, because a damaged model may load
 * successfully and fail only when it computes.
 */
export async function runSession(
  session: OnnxSession,
  inputs: Readonly<Record<string, OnnxTensor>>,
  outputs: readonly string[] = session.outputNames,
): Promise<Readonly<Record<string, OnnxTensor>>> {
  try {
    return await session.run(inputs, outputs);
  } catch (error) {
    const message = `the model cannot compute, its ONNX file may be damaged or of another model: ${reasonOf(error)}`;
    throw new ServerError("model_failed", message, { cause: error });
  }
}

/** Checks that a session has these inputs. Throws `model_file_invalid`, which names the missing inputs. */
export function checkInputs(session: OnnxSession, path: string, wanted: readonly string[]): void {
  const missing = wanted.filter((name) => !session.inputNames.includes(name));
  if (missing.length === 0) return;
  const message = `"${path}" expects the inputs ${wanted.join(", ")}; got a model with ${session.inputNames.join(", ")}`;
  throw new ServerError("model_file_invalid", message);
}

export function int64(onnx: Onnx, values: readonly number[], shape: readonly number[]): Tensor {
  return new onnx.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
}

export function float32(onnx: Onnx, values: Float32Array, shape: readonly number[]): Tensor {
  return new onnx.Tensor("float32", values, shape);
}

/** Maximum length of an error text of the library. */
const maxReason = 500;

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  // Removes the names of source files of the library.
  return inOneLine(text.replaceAll(/\/onnxruntime_src\/\S+ /g, " ")).slice(0, maxReason);
}
