// Audio graph: the encoder of an audio projector file as a graph of the wasm engine. An encoder of Whisper's kind consists of two
// convolutions, learned positions, transformer layers, and the projector. Other kinds: conformer/, samples-graph.ts. Tensor names are those
// of llama.cpp's mtmd.
import {
  type AudioProjectorFile,
  type AudioProjectorKind,
  windowPositions,
} from "../../files/projector/audio-projector.ts";
import type { Graph, GraphStep } from "../graph/graph.ts";
import type { GraphTensors, Norm } from "../graph/graph-tensors.ts";
import { checkHeads, type MediaGraph, mediaGraphParts, mediaShape } from "../graph/media-graph.ts";
import { type AudioStep, kernelFrames } from "./audio-outer-layers.ts";
import { audioTensors } from "./audio-tensors.ts";
import { buildGemma4Graph } from "./conformer/gemma4-graph.ts";
import { buildLfm2Graph } from "./conformer/lfm2-graph.ts";
import { buildSamplesGraph } from "./samples-graph.ts";

/** Projectors of encoders of Whisper's kind. */
type WhisperProjectorKind = Exclude<AudioProjectorKind, "gemma4a" | "gemma4ua" | "lfm2a">;

/** Builds the graph. Each position of the encoder is a token. Throws `model_file_invalid` or `unsupported` naming the tensor. */
export function buildAudioGraph(file: AudioProjectorFile): MediaGraph {
  const { projector } = file.rules;
  switch (projector) {
    case "gemma4a":
      return buildGemma4Graph(file);
    case "gemma4ua":
      return buildSamplesGraph(file);
    case "lfm2a":
      return buildLfm2Graph(file);
    default:
      return buildWhisperGraph(file, projector);
  }
}

/** The input row of a position contains the padded inputs of the first convolution for two frames. */
function buildWhisperGraph(file: AudioProjectorFile, projector: WhisperProjectorKind): MediaGraph {
  const { sizes } = file;
  const { width, layers, bands, length } = sizes;
  checkHeads("audio", sizes);
  const tensors = audioTensors(file);
  const convolution = (number: number, inputs: number) =>
    tensors.padded(`a.conv1d.${number}`, [kernelFrames, inputs, width], {
      rows: width,
      columns: kernelFrames * inputs,
    });
  const first = convolution(1, bands);
  const graph: Graph = {
    ...mediaGraphParts,
    pairing: "halves",
    normKind: "layer",
    embedding: first,
    positions: tensors.matrix("a.position_embd", windowPositions, width),
    embeddingNorm: null,
    outputNorm: tensors.norm("a.post_ln", true, [width]),
    layers: Array.from({ length: layers }, (_, layer) => layerSteps(tensors, sizes, `a.blk.${layer}.`)),
    vision: null,
    audio: {
      convolution: convolution(2, width),
      averagesPairs: sizes.averagesPairs,
      stack: sizes.stack,
      projector: projectorSteps(tensors, file, projector),
      length,
    },
  };
  tensors.checkAllUsed();
  const shape = mediaShape({ ...sizes, activation: "gelu", tokens: windowPositions, ropes: [] });
  return { graph, shape, tokens: windowPositions, rows: 1, inputFloats: 2 * first.columns };
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

function projectorSteps(
  tensors: GraphTensors,
  { sizes, table }: AudioProjectorFile,
  projector: WhisperProjectorKind,
): AudioStep[] {
  const { width, stack, length } = sizes;
  const matrix = (name: string, rows: number, columns: number): AudioStep => {
    return { kind: "matrix", matrix: tensors.matrix(name, rows, columns) };
  };
  const inner = table.tensors.get("mm.a.mlp.1.weight")?.shape[1] ?? 0;
  switch (projector) {
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
