// Graph of a projector that has no encoder (Gemma 4 12B): the input row of a token, which contains samples, is normed and projected.
import type { AudioProjectorFile } from "../../files/projector/audio-projector.ts";
import type { Graph } from "../graph/graph.ts";
import { type MediaGraph, mediaGraphParts, mediaShape } from "../graph/media-graph.ts";
import { audioTensors } from "./audio-tensors.ts";

/** Builds the graph. Throws `model_file_invalid` or `unsupported` naming the tensor. */
export function buildSamplesGraph(file: AudioProjectorFile): MediaGraph {
  const { sizes, rules } = file;
  const { width, length, epsilon } = sizes;
  const tensors = audioTensors(file);
  const matrix = tensors.matrix("mm.a.input_projection", length, width);
  const graph: Graph = {
    ...mediaGraphParts,
    ...{ pairing: "halves", normKind: "rms", positions: null, embeddingNorm: null, outputNorm: null },
    embedding: matrix,
    layers: [],
    vision: null,
    conformer: {
      subsampling: null,
      projector: [
        { kind: "norm", of: "rms", norm: null, epsilon },
        { kind: "matrix", matrix, activation: null },
      ],
      length,
    },
  };
  tensors.checkAllUsed();
  const tokens = rules.windowTokens;
  const shape = mediaShape({ ...sizes, activation: "silu", tokens, ropes: [] });
  return { graph, shape, tokens, rows: 1, inputFloats: width };
}
