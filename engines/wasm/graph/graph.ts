// Graph of a model: built once per load from an architecture and the tensors of a file. Every tensor of the graph is
// found, and its shape and type are checked. A tensor of the file that the graph does not use is an error. Plain data,
// sent to every compute thread.
import type { TensorTable } from "../../files/gguf/tensors.ts";
import type { AudioOuterLayers } from "../audio/audio-outer-layers.ts";
import type { ConformerOuterLayers, ConvolutionModuleStep, RelativeAttentionStep } from "../audio/conformer/steps.ts";
import type { VisionOuterLayers } from "../vision/vision-outer-layers.ts";
import type {
  Architecture,
  AttentionStep,
  ExpertsStep,
  FeedForwardStep,
  LayerStep,
} from "./architectures/architecture.ts";
import { type GraphPooling, readPooling } from "./graph-pooling.ts";
import { GraphTensors, type Matrix, type MatrixStack, type Norm } from "./graph-tensors.ts";
import { Keys } from "./keys.ts";
import { findOuterLayers, type OuterLayers } from "./outer-layers.ts";
import type { Hyperparameters } from "./shape.ts";

/** Names of tensors with one factor for each rotated pair. ropes.ts divides the rope frequencies by these factors. */
export const frequencyFactorNames = {
  always: "rope_freqs.weight",
  short: "rope_factors_short.weight",
  long: "rope_factors_long.weight",
};

/** Step of a layer, as in architectures/architecture.ts, but with tensors instead of tensor names. */
export type GraphStep =
  | { readonly kind: "norm"; readonly norm: Norm | null }
  | { readonly kind: "hiddenNorm"; readonly norm: Norm }
  | AttentionGraphStep
  | FeedForwardGraphStep
  | ExpertsGraphStep
  | RelativeAttentionStep
  | ConvolutionModuleStep;

/** Parameters of attention, without its matrices. */
export interface AttentionRules extends Pick<AttentionStep, "rope" | "behind" | "ahead" | "scale" | "softcap"> {
  readonly norms: HeadNorms | null;
  readonly postNorm: Norm | null;
  /** Whether a token attends only to the tokens of its own window of the image (PassDescriptor.windowCount). */
  readonly inWindows: boolean;
  /** Index of the rope of the second half of each head; absent = `rope` is that of the whole head. */
  readonly secondRope?: number;
  /** true: each head of the values is normed, by an RMS norm without weights. */
  readonly normsValues?: boolean;
}

export interface AttentionGraphStep extends AttentionRules {
  readonly kind: "attention";
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly output: Matrix;
}

/**
 * Norms of queries and keys. If each head is normed separately, either all heads share one weight vector or each head
 * has its own.
 */
export interface HeadNorms {
  readonly query: Norm;
  readonly key: Norm;
  /** "head": each head is normed separately. "row": all heads of a token are normed as one row. */
  readonly span: "head" | "row";
}

export interface FeedForwardGraphStep extends Pick<FeedForwardStep, "kind" | "activation"> {
  readonly gate: Matrix | null;
  readonly up: Matrix;
  readonly down: Matrix;
  readonly postNorm: Norm | null;
  /** Factor of the result before it is added to the hidden state; absent = 1. */
  readonly factor?: number;
}

interface ExpertsGraphStep extends Pick<ExpertsStep, "kind" | "activation" | "normalised"> {
  readonly router: Matrix;
  readonly gate: MatrixStack | null;
  readonly up: MatrixStack;
  readonly down: MatrixStack;
}

export interface Graph extends Pick<Architecture, "pairing" | "isEncoder">, OuterLayers {
  readonly normKind: Architecture["norm"];
  readonly layers: readonly (readonly GraphStep[])[];
  readonly pooling: GraphPooling;
  /** Outer layers of an image encoder; null if the model is no image encoder. */
  readonly vision: VisionOuterLayers | null;
  /** Outer layers of an audio encoder; null or absent if the model is no audio encoder. */
  readonly audio?: AudioOuterLayers | null;
  /** Outer layers of a conformer, or of a projector of samples; null or absent for other models. */
  readonly conformer?: ConformerOuterLayers | null;
}

/** Builds the graph of a model. Throws `model_file_invalid` or `unsupported` naming the tensor. */
export function buildGraph(architecture: Architecture, shape: Hyperparameters, table: TensorTable): Graph {
  const keys = new Keys(table.fields, architecture.name);
  const tensors = new GraphTensors(table, Object.values(frequencyFactorNames));
  const graph: Graph = {
    pairing: architecture.pairing,
    normKind: architecture.norm,
    isEncoder: architecture.isEncoder,
    ...findOuterLayers(architecture, shape, tensors),
    layers: Array.from({ length: shape.layers }, (_, layer) =>
      new LayerBuilder(architecture, shape, tensors, layer).steps(),
    ),
    pooling: readPooling(architecture, shape, keys, tensors, table.fields),
    vision: null,
  };
  tensors.checkAllUsed();
  return graph;
}

/** Finds the tensors of one layer. */
class LayerBuilder {
  readonly #architecture: Architecture;
  readonly #shape: Hyperparameters;
  readonly #tensors: GraphTensors;
  readonly #layer: number;
  readonly #prefix: string;

  constructor(architecture: Architecture, shape: Hyperparameters, tensors: GraphTensors, layer: number) {
    this.#architecture = architecture;
    this.#shape = shape;
    this.#tensors = tensors;
    this.#layer = layer;
    this.#prefix = `blk.${layer}.`;
  }

  steps(): GraphStep[] {
    const has = (name: string) => this.#tensors.has(this.#prefix + name);
    const steps = this.#architecture.steps({ layer: this.#layer, shape: this.#shape, has });
    return steps.map((step) => this.#resolve(step));
  }

  #resolve(step: LayerStep): GraphStep {
    switch (step.kind) {
      case "norm":
        return { kind: "norm", norm: step.weight === null ? null : this.#norm(step.weight) };
      case "hiddenNorm":
        return { kind: "hiddenNorm", norm: this.#norm(step.weight) };
      case "attention":
        return this.#attention(step);
      case "feedForward":
        return this.#feedForward(step);
      case "experts":
        return this.#experts(step);
    }
  }

  #attention(step: AttentionStep): AttentionGraphStep {
    const { width, heads, kvHeads, headLength } = this.#shape;
    const { kind, rope, behind, ahead, scale, softcap } = step;
    const rows = [heads * headLength, kvHeads * headLength, kvHeads * headLength];
    const names = [step.query, step.key, step.value];
    const isFused = this.#tensors.has(this.#prefix + step.fused);
    const matrices = isFused
      ? this.#fused(step.fused, rows, names)
      : names.map((name, i) => this.#matrix(name, rows[i] as number, width));
    const [query, key, value] = matrices as [Matrix, Matrix, Matrix];
    return {
      ...{ kind, rope, behind, ahead, scale, softcap, inWindows: false },
      ...{ query, key, value },
      output: this.#matrix(step.output, width, heads * headLength),
      norms: this.#headNorms(step.norms),
      postNorm: this.#postNorm(step.postNorm),
    };
  }

  #feedForward({ kind, activation, gate, up, down, postNorm }: FeedForwardStep): FeedForwardGraphStep {
    const { width, feedForward } = this.#shape;
    const names = gate === null ? [up] : [gate, up];
    const matrices =
      gate === up
        ? this.#fused(up, [feedForward, feedForward])
        : names.map((name) => this.#matrix(name, feedForward, width));
    return {
      ...{ kind, activation },
      gate: gate === null ? null : (matrices[0] as Matrix),
      up: matrices.at(-1) as Matrix,
      down: this.#matrix(down, width, feedForward),
      postNorm: this.#postNorm(postNorm),
    };
  }

  #headNorms(norms: AttentionStep["norms"]): HeadNorms | null {
    if (norms === null) return null;
    const { heads, kvHeads, headLength } = this.#shape;
    const { span } = norms;
    const find = (name: string, count: number) =>
      span === "row" ? this.#norm(name, [count * headLength]) : this.#norm(name, [headLength], [headLength, count]);
    return { query: find(norms.query, heads), key: find(norms.key, kvHeads), span };
  }

  #experts({ kind, router, gate, up, down, activation, normalised }: ExpertsStep): ExpertsGraphStep {
    const { width, experts } = this.#shape;
    if (experts === null) throw new Error(`${this.#architecture.name} has experts without a count`);
    const { count, feedForward } = experts;
    const stack = (name: string, rows: number, columns: number) =>
      this.#tensors.stack(this.#prefix + name, count, rows, columns);
    return {
      ...{ kind, activation, normalised },
      router: this.#matrix(router, count, width),
      gate: gate === null ? null : stack(gate, feedForward, width),
      up: stack(up, feedForward, width),
      down: stack(down, width, feedForward),
    };
  }

  #matrix(name: string, rows: number, columns: number): Matrix {
    return this.#tensors.matrix(this.#prefix + name, rows, columns);
  }

  #fused(name: string, rowCounts: readonly number[], biasesOf: readonly string[] = []): Matrix[] {
    const biases = biasesOf.map((one) => this.#prefix + one);
    return this.#tensors.fused(this.#prefix + name, rowCounts, this.#shape.width, biases);
  }

  #norm(name: string, ...shapes: readonly (readonly number[])[]): Norm {
    const possible = shapes.length > 0 ? shapes : [[this.#shape.width]];
    return this.#tensors.norm(this.#prefix + name, this.#architecture.norm === "layer", ...possible);
  }

  #postNorm(name: string | null): Norm | null {
    return name === null ? null : this.#norm(name);
  }
}
