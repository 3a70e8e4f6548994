// Graph ends: the parts of a model before and after its layers. They are the embedding with what encoders add to it,
// and the output matrix, which encoders lack. Plain data, part of the graph. Called once per load.
import type { Architecture } from "./architectures/architecture.ts";
import type { GraphTensors, Matrix, Norm } from "./graph-tensors.ts";
import type { Hyperparameters } from "./shape.ts";

export interface GraphEnds {
  readonly embedding: Matrix;
  /** Tables added to a token's embedding: the row of its position, and the row of token type 0; null = none. */
  readonly positions: Matrix | null;
  readonly tokenType: Matrix | null;
  /** Norm of the sum of the embeddings; null = none. */
  readonly embeddingNorm: Norm | null;
  /** Null = none. */
  readonly outputNorm: Norm | null;
  /** The embedding itself if the file ties them; null if the model has no logits. */
  readonly output: Matrix | null;
}

/** Throws `model_file_invalid` or `unsupported` naming the tensor. */
export function findEnds(
  { norm, encoder }: Architecture,
  { width, vocabSize, trainedContext }: Hyperparameters,
  tensors: GraphTensors,
): GraphEnds {
  const findNorm = (name: string) => tensors.norm(name, norm === "layer", [width]);
  const embedding = tensors.matrix("token_embd", vocabSize, width);
  if (encoder) {
    return {
      embedding,
      positions: encoder.hasPositions ? tensors.matrix("position_embd", trainedContext, width) : null,
      tokenType: tensors.firstRow("token_types", width),
      embeddingNorm: findNorm("token_embd_norm"),
      outputNorm: encoder.hasOutputNorm ? findNorm("output_norm") : null,
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
