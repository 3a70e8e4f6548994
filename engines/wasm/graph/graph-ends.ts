// Owns what a model has before and behind its layers: the embedding with what encoders add to it, and what turns the last
// hidden state into logits, which encoders have none of. Plain data, part of the graph. Called once a load.
import type { Architecture } from "./architectures/architecture.ts";
import type { GraphTensors, Matrix, Norm } from "./graph-tensors.ts";
import type { Hyperparameters } from "./shape.ts";

export interface GraphEnds {
  readonly embedding: Matrix;
  /** Added to a token's embedding: the row of its position, and that of the first type of token; null = none. */
  readonly positions: Matrix | null;
  readonly tokenType: Matrix | null;
  /** Of what was added up; null = none. */
  readonly embeddingNorm: Norm | null;
  /** Null = none. */
  readonly outputNorm: Norm | null;
  /** The embedding itself where the file ties them; null where there are no logits. */
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
