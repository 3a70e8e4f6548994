// Model card: facts about a loaded model, shown to users. Created once per load.
import type { ModelCard, ModelSpec } from "../../engine.ts";
import { tensorTypes } from "../../files/gguf/tensors.ts";
import { inputFloats } from "../graph/shape.ts";
import { tensorBytes, type WasmModelFile } from "./fit.ts";
import type { KernelModule } from "./kernel-module.ts";

export function modelCard(
  spec: ModelSpec,
  { shape, table, graph }: WasmModelFile,
  kernels: KernelModule,
  threads: number,
  kvCacheBytes: number,
): ModelCard {
  const elements = [...table.tensors.values()].map(({ shape: lengths }) => lengths.reduce((a, b) => a * b, 1));
  const type = tensorTypes.get(graph.layers.flat().find((step) => step.kind === "attention")?.query.tensor.type ?? 0);
  return {
    path: spec.path,
    description: `${shape.architecture} ${type?.name ?? ""}`,
    engine: `wasm (${kernels.variant} SIMD${detailOf(kernels)})`,
    backend: `cpu, ${threads} threads`,
    vocabSize: shape.vocabSize,
    inputLength: inputFloats(shape),
    parameterCount: elements.reduce((a, b) => a + b, 0),
    tensorBytes: tensorBytes(table),
    weightBytes: tensorBytes(table),
    trainedContext: shape.trainedContext,
    kvCacheBytes,
  };
}

/**
 * Returns a note on the kernel variant: that the dot instruction takes 8-bit unsigned operands (wide dot), or the
 * reason for the plain variant.
 */
function detailOf({ wideDot, plainBecause }: KernelModule): string {
  if (wideDot) return ", 8-bit dot";
  return plainBecause === undefined ? "" : `: ${plainBecause}`;
}
