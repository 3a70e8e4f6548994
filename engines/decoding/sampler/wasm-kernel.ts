// WasmKernel: typed wrapper of the SIMD kernel (kernel/, AssemblyScript). It loads the kernel and creates views of its
// memory. Called by Sampler.create(). The kernel's memory does not grow after prepare(), so the views stay valid.
import { readFileSync } from "node:fs";
import { ServerError } from "../../../runtime/errors.ts";
import { type Filters, maskWords, type RowKernel } from "./row-kernel.ts";

/** The types of WebAssembly that are used here. Neither the es2023 library nor Node's types declare them. */
declare const WebAssembly: {
  validate(bytes: Uint8Array): boolean;
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: unknown };
};

/** Functions and memory that kernel/sampler.ts exports. */
interface Exports {
  readonly memory: { readonly buffer: ArrayBuffer };
  prepare(vocabSize: number): number;
  idsAt(): number;
  weightsAt(): number;
  maskAt(): number;
  restrict(): void;
  argmax(): number;
  draw(scale: number, topK: number, topP: number, minDistance: number, u: number): number;
  scan(): number;
  weighRow(scale: number): number;
  top(limit: number): number;
}

let compiled: object | null | undefined;

export class WasmKernel implements RowKernel {
  readonly vocabSize: number;
  readonly row: Float32Array;
  readonly mask: Int32Array;
  readonly topIds: Int32Array;
  readonly topLogits: Float32Array;
  readonly #exports: Exports;

  /** Creates a kernel with its own memory for rows of `vocabSize` logits; null if WebAssembly has no SIMD. */
  static create(vocabSize: number): WasmKernel | null {
    compiled ??= compile();
    return compiled && new WasmKernel(compiled, vocabSize);
  }

  private constructor(module: object, vocabSize: number) {
    this.#exports = new WebAssembly.Instance(module).exports as Exports;
    this.vocabSize = vocabSize;
    const rowAt = this.#exports.prepare(vocabSize);
    const { buffer } = this.#exports.memory;
    this.row = new Float32Array(buffer, rowAt, vocabSize);
    this.mask = new Int32Array(buffer, this.#exports.maskAt(), maskWords(vocabSize));
    this.topIds = new Int32Array(buffer, this.#exports.idsAt(), vocabSize);
    this.topLogits = new Float32Array(buffer, this.#exports.weightsAt(), vocabSize);
  }

  restrict(): void {
    this.#exports.restrict();
  }

  argmax(): number {
    return this.#exports.argmax();
  }

  draw({ temperature, topK, topP, minP }: Filters, u: number): number {
    const scale = Math.LOG2E / temperature;
    return this.#exports.draw(scale, topK, topP, -Math.log(minP) * temperature, u);
  }

  logSum(): number {
    const peak = this.#exports.scan();
    return Number.isFinite(peak) ? peak + Math.log(this.#exports.weighRow(Math.LOG2E)) : peak;
  }

  top(limit: number): number {
    return this.#exports.top(limit);
  }
}

/**
 * Compiles the WebAssembly file in this folder; null if SIMD is missing. All models share the module, so that it is
 * compiled only once.
 */
function compile(): object | null {
  const file = new URL("./sampler.wasm", import.meta.url);
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (cause) {
    throw new ServerError("internal", `expected the sampler's kernel at ${file.pathname}; run "npm run build"`, {
      cause,
    });
  }
  return WebAssembly.validate(bytes) ? new WebAssembly.Module(bytes) : null;
}
