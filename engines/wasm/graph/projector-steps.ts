// Steps of projectors of image encoders and of conformers. Plain data, part of the graph.
import type { Matrix, Norm } from "./graph-tensors.ts";
import type { Activation } from "./shape.ts";

/** Norm of each row. An RMS norm without `norm` has the weights 1. */
export type NormStep =
  | { readonly kind: "norm"; readonly of: "layer"; readonly norm: Norm; readonly epsilon: number }
  | { readonly kind: "norm"; readonly of: "rms"; readonly norm: Norm | null; readonly epsilon: number };

/** Product with a matrix, plus its bias, then an activation unless it is null. */
export interface MatrixStep {
  readonly kind: "matrix";
  readonly matrix: Matrix;
  readonly activation: Activation | null;
}
