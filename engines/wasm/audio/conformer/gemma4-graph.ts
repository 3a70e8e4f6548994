// Graph of a conformer: the audio encoder of Gemma 4, built from a projector file. A layer has two feed-forwards, whose
// results are halved, with local attention and a convolution module between them. Tensor names are those of llama.cpp's mtmd.
import type { AudioProjectorFile } from "../../../files/projector/audio-projector.ts";
import type { FeedForwardGraphStep, Graph, GraphStep } from "../../graph/graph.ts";
import type { GraphTensors, Matrix, Norm } from "../../graph/graph-tensors.ts";
import { checkHeads, type MediaGraph, mediaGraphParts, mediaShape } from "../../graph/media-graph.ts";
import { audioTensors } from "../audio-tensors.ts";
import { type ConformerProjectorStep, kernelSide, type SubsamplingStage, stridedLength } from "./steps.ts";

const feedForwardFactor = 0.5;
/** A position attends to 11 before it. The factors are those of transformers: softplus(1) / ln 2 for keys, and 1 / ln 2 for queries. */
const [behind, softcap, keyFactor, queryFactor] = [11, 50, Math.log(1 + Math.E) / Math.LN2, 1 / Math.LN2];

/**
 * Builds the graph. Each position of the encoder is a token, whose input row contains four frames of the spectrogram. Throws
 * `model_file_invalid` or `unsupported` naming the tensor.
 */
export function buildGemma4Graph(file: AudioProjectorFile): MediaGraph {
  const { table, sizes, rules } = file;
  const { width, bands, length, layers } = sizes;
  checkHeads("audio", sizes);
  const tensors = audioTensors(file);
  const vector = (name: string, count: number) => (tensors.has(name) ? tensors.vector(`${name}.weight`, count) : null);
  const stage = (number: number, inputs: number): SubsamplingStage => {
    const channels = table.tensors.get(`a.conv1d.${number}.weight`)?.shape[3] ?? 0;
    const shape = [kernelSide, kernelSide, inputs, channels];
    const filled = { rows: channels, columns: inputs * kernelSide ** 2 };
    const matrix = tensors.padded(`a.conv1d.${number}`, shape, filled);
    return { matrix, depthwise: null, channels, norm: vector(`a.conv1d.${number}.norm`, channels) };
  };
  const first = stage(0, 1);
  const second = stage(1, first.channels);
  const inputColumns = second.channels * stridedLength(bands, 2);
  const outputName = "a.pre_encode.out";
  const outputRows = tensors.rowsOf(outputName);
  const embedderColumns = outputRows ?? width;
  const matrixStep = (matrix: Matrix): ConformerProjectorStep => ({ kind: "matrix", matrix, activation: null });
  const normName = "mm.a.soft_emb_norm";
  const graph: Graph = {
    ...mediaGraphParts,
    pairing: "halves",
    normKind: "rms",
    embedding: first.matrix,
    positions: null,
    embeddingNorm: null,
    outputNorm: null,
    layers: Array.from({ length: layers }, (_, layer) => layerSteps(tensors, sizes, `a.blk.${layer}.`)),
    vision: null,
    conformer: {
      subsampling: {
        bands,
        stages: [first, second],
        inputProjection: tensors.padded("a.input_projection", [inputColumns, width], {
          rows: width,
          columns: inputColumns,
        }),
        areChannelsFirst: false,
      },
      projector: [
        ...(outputRows === null ? [] : [matrixStep(tensors.matrix(outputName, outputRows, width))]),
        {
          ...{ kind: "norm", of: "rms", epsilon: sizes.epsilon },
          norm: tensors.has(normName) ? tensors.norm(normName, false, [embedderColumns]) : null,
        },
        matrixStep(tensors.matrix("mm.a.input_projection", length, embedderColumns)),
      ],
      length,
    },
  };
  tensors.checkAllUsed();
  const tokens = rules.windowTokens;
  const shape = mediaShape({ ...sizes, activation: "silu", tokens, ropes: [] });
  return { graph, shape, tokens, rows: 1, inputFloats: 4 * bands };
}

function layerSteps(
  tensors: GraphTensors,
  { width, heads, feedForward }: AudioProjectorFile["sizes"],
  prefix: string,
): GraphStep[] {
  const matrix = (name: string, rows: number, columns: number) => tensors.matrix(prefix + name, rows, columns);
  const norm = (name: string): Norm => tensors.norm(prefix + name, false, [width]);
  const optionalNorm = (name: string): Norm | null => (tensors.has(prefix + name) ? norm(name) : null);
  const perHead = (name: string) =>
    tensors.has(prefix + name) ? tensors.vector(`${prefix}${name}.weight`, width / heads) : null;
  const feed = (suffix: string): FeedForwardGraphStep => ({
    kind: "feedForward",
    gate: null,
    up: matrix(`ffn_up${suffix}`, feedForward, width),
    down: matrix(`ffn_down${suffix}`, width, feedForward),
    activation: "silu",
    postNorm: optionalNorm(`ffn_post_norm${suffix}`),
    factor: feedForwardFactor,
  });
  const innerNorm = optionalNorm("norm_conv");
  const kernelLength = tensors.columnsOf(`${prefix}conv_dw`) ?? 0;
  return [
    { kind: "norm", norm: norm("ffn_norm") },
    feed(""),
    { kind: "norm", norm: norm(tensors.has(`${prefix}attn_pre_norm`) ? "attn_pre_norm" : "ln1") },
    {
      kind: "relativeAttention",
      query: matrix("attn_q", width, width),
      key: matrix("attn_k", width, width),
      value: matrix("attn_v", width, width),
      output: matrix("attn_out", width, width),
      relativePosition: matrix("attn_k_rel", width, width),
      ...{ behind, ahead: 0, softcap, encoding: "blocks", contentBias: null, positionBias: null },
      ...{ keyFactor, queryFactor: queryFactor / Math.sqrt(width / heads) },
      queryScale: perHead("per_dim_scale"),
      keyScale: perHead("per_dim_k_scale"),
      postNorm: optionalNorm("attn_post_norm"),
    },
    // In files, the names of the norm before the convolution module ("conv_norm") and of the norm inside of it are swapped.
    { kind: "norm", norm: norm("conv_norm") },
    {
      kind: "convolutionModule",
      pointwise: matrix("conv_pw1", 2 * width, width),
      kernel: tensors.vector(`${prefix}conv_dw.weight`, kernelLength, width),
      ...{ kernelLength, ahead: 0, bias: null },
      norm: innerNorm && { of: "rms", norm: innerNorm },
      output: matrix("conv_pw2", width, width),
    },
    { kind: "norm", norm: norm("ffn_norm_1") },
    feed("_1"),
    { kind: "hiddenNorm", norm: norm("ln2") },
  ];
}
