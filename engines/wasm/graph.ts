// Owns turning an architecture and a model file's tensors into the graph that is run: every tensor found, its shape and type
// checked, and none left over, because a tensor that is silently ignored is a wrong answer. Plain data: it goes to every
// compute thread. Called once a load.
import { ServerError } from "../../runtime/errors.ts";
import { type TensorInfo, type TensorTable, tensorTypes } from "../gguf/tensors.ts";
import type { Architecture, LayerStep } from "./architectures/architecture.ts";
import { llama } from "./architectures/llama.ts";
import type { Hyperparameters } from "./hyperparameters.ts";

const architectures: readonly Architecture[] = [llama];

/** GGUF types of matrices the kernels multiply with. */
const matrixTypes: ReadonlySet<number> = new Set([0, 1, 2, 3, 8, 30]);
const f32 = 0;
/** Kernels work on 32 columns at a time. */
const columnGrain = 32;
/** A factor for each rotated pair, applied when frequencies are made. */
export const frequencyFactorsName = "rope_freqs.weight";

export interface Matrix {
  readonly tensor: TensorInfo;
  readonly rows: number;
  readonly columns: number;
}

export type GraphStep =
  | { readonly kind: "norm"; readonly weight: TensorInfo }
  | {
      readonly kind: "attention";
      readonly query: Matrix;
      readonly key: Matrix;
      readonly value: Matrix;
      readonly output: Matrix;
    }
  | { readonly kind: "feedForward"; readonly gate: Matrix; readonly up: Matrix; readonly down: Matrix };

export interface Graph {
  readonly pairing: Architecture["pairing"];
  readonly embedding: Matrix;
  readonly layers: readonly (readonly GraphStep[])[];
  readonly outputNorm: TensorInfo;
  /** The embedding itself where the file ties them. */
  readonly output: Matrix;
}

/** The architecture by its name in files. Throws `unsupported` naming those there are. */
export function findArchitecture(name: string): Architecture {
  const found = architectures.find((architecture) => architecture.name === name);
  if (found) return found;
  const known = architectures.map((architecture) => architecture.name).join(", ");
  throw new ServerError(
    "unsupported",
    `the wasm engine does not run the architecture "${name}"; it runs ${known}: use --engine llama for this model`,
    { param: "engine" },
  );
}

/** Throws `model_file_invalid` or `unsupported` naming the tensor. */
export function buildGraph(architecture: Architecture, shape: Hyperparameters, table: TensorTable): Graph {
  const { layers, width, vocabSize } = shape;
  const tensors = new Tensors(table);
  const graph: Graph = {
    pairing: architecture.pairing,
    embedding: tensors.matrix("token_embd", vocabSize, width),
    layers: Array.from({ length: layers }, (_, layer) =>
      architecture.layer.map((step) => resolveStep(tensors, step, `blk.${layer}.`, shape)),
    ),
    outputNorm: tensors.vector("output_norm", width),
    output: tensors.matrix(tensors.has("output") ? "output" : "token_embd", vocabSize, width),
  };
  tensors.checkAllUsed();
  return graph;
}

function resolveStep(tensors: Tensors, step: LayerStep, prefix: string, shape: Hyperparameters): GraphStep {
  const { width, feedForward, heads, kvHeads, headLength } = shape;
  const matrix = (name: string, rows: number, columns: number) => tensors.matrix(prefix + name, rows, columns);
  switch (step.kind) {
    case "norm":
      return { kind: "norm", weight: tensors.vector(prefix + step.weight, width) };
    case "attention":
      return {
        kind: "attention",
        query: matrix(step.query, heads * headLength, width),
        key: matrix(step.key, kvHeads * headLength, width),
        value: matrix(step.value, kvHeads * headLength, width),
        output: matrix(step.output, width, heads * headLength),
      };
    case "feedForward":
      return {
        kind: "feedForward",
        gate: matrix(step.gate, feedForward, width),
        up: matrix(step.up, feedForward, width),
        down: matrix(step.down, width, feedForward),
      };
  }
}

/** The file's tensors by name, and which of them the graph has taken. */
class Tensors {
  readonly #table: TensorTable;
  readonly #used = new Set<string>([frequencyFactorsName]);

  constructor(table: TensorTable) {
    this.#table = table;
  }

  has(name: string): boolean {
    return this.#table.tensors.has(`${name}.weight`);
  }

  vector(name: string, length: number): TensorInfo {
    const tensor = this.#take(name, [length]);
    if (tensor.type !== f32) throw this.#unsupportedType(tensor, "F32");
    return tensor;
  }

  matrix(name: string, rows: number, columns: number): Matrix {
    const tensor = this.#take(name, [columns, rows]);
    if (!matrixTypes.has(tensor.type)) throw this.#unsupportedType(tensor, "F32, F16, BF16, Q8_0, Q4_0 or Q4_1");
    if (columns % columnGrain !== 0) {
      throw new ServerError(
        "unsupported",
        `tensor "${tensor.name}" has rows of ${columns} values; the wasm engine takes multiples of ${columnGrain}`,
      );
    }
    return { tensor, rows, columns };
  }

  checkAllUsed(): void {
    for (const name of this.#table.tensors.keys()) {
      if (this.#used.has(name)) continue;
      throw new ServerError(
        "unsupported",
        `the model has a tensor "${name}" that the wasm engine has no use for, so its answers would be wrong; ` +
          "use --engine llama for this model",
        { param: "engine" },
      );
    }
  }

  #take(name: string, shape: readonly number[]): TensorInfo {
    const tensor = this.#table.tensors.get(`${name}.weight`);
    if (!tensor) throw this.#invalid(`has no tensor "${name}.weight"`);
    const found = tensor.shape.filter((length, i) => i < shape.length || length !== 1);
    if (found.length !== shape.length || found.some((length, i) => length !== shape[i])) {
      throw this.#invalid(`has "${tensor.name}" as ${tensor.shape.join(" x ")}, where ${shape.join(" x ")} belongs`);
    }
    this.#used.add(tensor.name);
    return tensor;
  }

  #invalid(problem: string): ServerError {
    return new ServerError("model_file_invalid", `${this.#table.files[0]} ${problem}`);
  }

  #unsupportedType(tensor: TensorInfo, expected: string): ServerError {
    const name = tensorTypes.get(tensor.type)?.name ?? `type ${tensor.type}`;
    return new ServerError(
      "unsupported",
      `tensor "${tensor.name}" is ${name}; the wasm engine takes ${expected} there: use --engine llama for this model`,
      { param: "engine" },
    );
  }
}
