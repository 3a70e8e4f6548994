// Audio graph: the encoder of an audio projector file as a graph of the wasm engine. Two convolutions, learnt positions, layers of
// Whisper's kind, and the projector. Tensor names are those of llama.cpp's mtmd.

import { ServerError } from "../../../runtime/errors.ts";
import { type AudioProjectorFile, windowPositions } from "../../files/audio-projector.ts";
import type { Graph, GraphStep } from "../graph/graph.ts";
import { GraphTensors, type Norm } from "../graph/graph-tensors.ts";
import type { Hyperparameters } from "../graph/shape.ts";
import type { AudioStep } from "./audio-ends.ts";

export interface AudioModel {
  readonly graph: Graph;
  readonly shape: Hyperparameters;
  /** Number of floats of the input rows of a position: two frames of the first convolution, each padded. */
  readonly inputFloats: number;
}

/** Builds the graph. Throws `model_file_invalid` or `unsupported` naming the tensor. */
export function buildAudioGraph(file: AudioProjectorFile): AudioModel {
  const { table, sizes } = file;
  const { width, heads, layers, bands, length } = sizes;
  if (width % heads !== 0 || (width / heads) % 4 !== 0) {
    const found = `${heads} heads of ${width / heads} floats`;
    throw new ServerError("unsupported", `the audio encoder has ${found}; expected a multiple of 4 floats`, {
      param: "mmproj",
    });
  }
  const tensors = new GraphTensors(table, [], "fetch the projector file with F16 or F32 weights");
  const convolution = (number: number, inputs: number) =>
    tensors.padded(`a.conv1d.${number}`, [3, inputs, width], { rows: width, columns: 3 * inputs });
  const first = convolution(1, bands);
  const graph: Graph = {
    pairing: "halves",
    normKind: "layer",
    isEncoder: true,
    embedding: first,
    positions: tensors.matrix("a.position_embd", windowPositions, width),
    tokenType: null,
    embeddingNorm: null,
    outputNorm: tensors.norm("a.post_ln", true, [width]),
    output: null,
    layers: Array.from({ length: layers }, (_, layer) => layerSteps(tensors, sizes, `a.blk.${layer}.`)),
    pooling: { kind: null, length: 0, dense: [], head: null },
    vision: null,
    audio: {
      convolution: convolution(2, width),
      averagesPairs: sizes.averagesPairs,
      stack: sizes.stack,
      projector: projectorSteps(tensors, file),
      length,
    },
  };
  tensors.checkAllUsed();
  return { graph, shape: shapeOf(sizes), inputFloats: 2 * first.columns };
}

function shapeOf({ layers, width, heads, feedForward, epsilon }: AudioProjectorFile["sizes"]): Hyperparameters {
  const headLength = width / heads;
  return {
    architecture: "clip",
    ...{ layers, width, feedForward, heads, kvHeads: heads, headLength, rotated: 0, epsilon },
    trainedContext: windowPositions,
    vocabSize: 0,
    experts: null,
    embeddingScale: 1,
    residualScale: 1,
    alibi: 0,
    expertInterval: 0,
    logitScale: 1,
    logitSoftcap: 0,
    attentionScale: 1 / Math.sqrt(headLength),
    attentionSoftcap: 0,
    window: 0,
    slides: [],
    activation: "gelu",
    ropes: [],
    longRope: null,
  };
}

function layerSteps(tensors: GraphTensors, sizes: AudioProjectorFile["sizes"], prefix: string): GraphStep[] {
  const { width, heads, feedForward } = sizes;
  const norm = (name: string): Norm => tensors.norm(prefix + name, true, [width]);
  const matrix = (name: string, rows: number, columns: number) => tensors.matrix(prefix + name, rows, columns);
  return [
    { kind: "norm", norm: norm("ln1") },
    {
      kind: "attention",
      query: matrix("attn_q", width, width),
      key: matrix("attn_k", width, width),
      value: matrix("attn_v", width, width),
      output: matrix("attn_out", width, width),
      ...{ norms: null, postNorm: null, rope: null, softcap: 0, inWindows: false },
      behind: Number.POSITIVE_INFINITY,
      ahead: Number.POSITIVE_INFINITY,
      scale: 1 / Math.sqrt(width / heads),
    },
    { kind: "norm", norm: norm("ln2") },
    {
      kind: "feedForward",
      gate: null,
      up: matrix("ffn_up", feedForward, width),
      down: matrix("ffn_down", width, feedForward),
      activation: "gelu",
      postNorm: null,
    },
  ];
}

function projectorSteps(tensors: GraphTensors, { rules, sizes, table }: AudioProjectorFile): AudioStep[] {
  const { width, stack, length } = sizes;
  const matrix = (name: string, rows: number, columns: number): AudioStep => {
    return { kind: "matrix", matrix: tensors.matrix(name, rows, columns) };
  };
  const inner = table.tensors.get("mm.a.mlp.1.weight")?.shape[1] ?? 0;
  switch (rules.projector) {
    case "qwen2a":
      return [matrix("mm.a.fc", length, width)];
    case "voxtral":
      return [matrix("mm.a.mlp.1", inner, width * stack), { kind: "gelu" }, matrix("mm.a.mlp.2", length, inner)];
    case "ultravox":
      return [
        { kind: "norm", weight: tensors.vector("mm.a.norm_pre.weight", width * stack) },
        matrix("mm.a.mlp.1", inner, width * stack),
        { kind: "gated" },
        { kind: "norm", weight: tensors.vector("mm.a.norm_mid.weight", inner / 2) },
        matrix("mm.a.mlp.2", length, inner / 2),
      ];
  }
}
