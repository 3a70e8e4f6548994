// Outer layers: the parts of a model before and after its layers. The embedding and the tables that encoders add to it
// come before the layers. The output norm and the output matrix come after them; encoders have no output matrix. Plain
// data, part of the graph. Built once per load.
import type { Architecture } from "./architectures/architecture.ts";
import type { GraphTensors, Matrix, Norm } from "./graph-tensors.ts";
import type { Hyperparameters } from "./shape.ts";

export interface OuterLayers {
  readonly embedding: Matrix;
  /**
   * Tables of which one row is added to a token's embedding: from `positions` the row of the token's position, from
   * `tokenType` the row of token type 0. Null = no such table.
   */
  readonly positions: Matrix | null;
  readonly tokenType: Matrix | null;
  /** Norm applied to the sum of the embedding and the rows of `positions` and `tokenType`; null = none. */
  readonly embeddingNorm: Norm | null;
  /** Norm of the last layer's hidden states; null = none. */
  readonly outputNorm: Norm | null;
  /**
   * Output matrix: the embedding itself if the file has no separate matrix (tied weights); null if the model has no
   * logits.
   */
  readonly output: Matrix | null;
}

/** Finds the tensors of the outer layers. Throws `model_file_invalid` or `unsupported` naming the tensor. */
export function findOuterLayers(
  { norm, encoder }: Architecture,
  { width, vocabSize, trainedContext }: Hyperparameters,
  tensors: GraphTensors,
): OuterLayers {
  const findNorm = (name: string) => tensors.norm(name, norm === "layer", [width]);
  const embedding = tensors.matrix("token_embd", vocabSize, width);
  if (encoder) {
    return {
      embedding,
      positions: encoder.hasPositions ? tensors.matrix("position_embd", trainedContext, width) : null,
      tokenType: tensors.firstRow("token_types", width),
      embeddingNorm: encoder.hasEmbeddingNorm ? findNorm("token_embd_norm") : null,
      outputNorm: encoder.outputNorm === null ? null : findNorm(encoder.outputNorm),
      output: null,
    };
  }
  return {
    embedding,
    positions: null,
    tokenType: null,
    embeddingNorm: null,
    outputNorm: findNorm("output_norm"),
    output: tensors.matrix(tensors.has("output") ? "output" : "token_embd", vocabSize, width, "output"),
  };
}
