// Graph of a conformer: the audio encoder of LFM2-Audio (NeMo's FastConformer), built from a projector file. Each position attends to all
// others. Tensor names are those of llama.cpp's mtmd.
import type { AudioProjectorFile } from "../../../files/projector/audio-projector.ts";
import type { FeedForwardGraphStep, Graph, GraphStep } from "../../graph/graph.ts";
import type { GraphTensors, Norm } from "../../graph/graph-tensors.ts";
import { checkHeads, type MediaGraph, mediaGraphParts, mediaShape } from "../../graph/media-graph.ts";
import { audioTensors } from "../audio-tensors.ts";
import { kernelSide, type SubsamplingStage, stridedLength } from "./steps.ts";

const feedForwardFactor = 0.5;
/** Tensors of the model's audio output, which are in the file, too. */
const outputTensors = ["a.position_embd", "a.position_embd_norm", "a.embd_to_logits"];

/**
 * Builds the graph. Each position of the encoder is a token, whose input row contains eight frames of the spectrogram. Throws
 * `model_file_invalid` or `unsupported` naming the tensor.
 */
export function buildLfm2Graph(file: AudioProjectorFile): MediaGraph {
  const { table, sizes, rules } = file;
  const { width, bands, length, layers, epsilon } = sizes;
  checkHeads("audio", sizes);
  const tensors = audioTensors(file);
  for (const name of outputTensors) tensors.leaveOut(name);
  const channels = table.tensors.get("a.conv1d.0.weight")?.shape[3] ?? 0;
  const stages = [firstStage(tensors, channels), laterStage(tensors, channels, 2), laterStage(tensors, channels, 5)];
  const columns = channels * stridedLength(bands, stages.length);
  const inner = tensors.rowsOf("mm.a.mlp.1") ?? 0;
  const graph: Graph = {
    ...mediaGraphParts,
    ...{ pairing: "halves", normKind: "layer", positions: null, embeddingNorm: null, outputNorm: null },
    embedding: (stages[0] as SubsamplingStage).matrix,
    layers: Array.from({ length: layers }, (_, layer) => layerSteps(tensors, sizes, `a.blk.${layer}.`)),
    vision: null,
    conformer: {
      subsampling: {
        ...{ bands, stages },
        inputProjection: tensors.padded("a.pre_encode.out", [columns, width], { rows: width, columns }),
        areChannelsFirst: true,
      },
      projector: [
        { kind: "norm", of: "layer", norm: tensors.norm("mm.a.mlp.0", true, [width]), epsilon },
        { kind: "matrix", matrix: tensors.matrix("mm.a.mlp.1", inner, width), activation: "gelu" },
        { kind: "matrix", matrix: tensors.matrix("mm.a.mlp.3", length, inner), activation: null },
      ],
      length,
    },
  };
  tensors.checkAllUsed();
  const tokens = rules.windowTokens;
  const shape = mediaShape({ ...sizes, activation: "silu", tokens, ropes: [] });
  return { graph, shape, tokens, rows: 1, inputFloats: 2 ** stages.length * bands };
}

function firstStage(tensors: GraphTensors, channels: number): SubsamplingStage {
  const filled = { rows: channels, columns: kernelSide ** 2 };
  const matrix = tensors.padded("a.conv1d.0", [kernelSide, kernelSide, 1, channels], filled);
  return { matrix, depthwise: null, channels, norm: null };
}

/** Returns a stage whose depthwise convolution has the number `number` in the file; its matrix has the next number. */
function laterStage(tensors: GraphTensors, channels: number, number: number): SubsamplingStage {
  const depthwise = {
    kernel: tensors.vector(`a.conv1d.${number}.weight`, kernelSide, kernelSide, 1, channels),
    bias: tensors.vector(`a.conv1d.${number}.bias`, 1, 1, channels),
  };
  const name = `a.conv1d.${number + 1}`;
  const matrix = tensors.padded(name, [1, 1, channels, channels], { rows: channels, columns: channels });
  return { matrix, depthwise, channels, norm: null };
}

function layerSteps(
  tensors: GraphTensors,
  { width, heads, feedForward }: AudioProjectorFile["sizes"],
  prefix: string,
): GraphStep[] {
  const matrix = (name: string, rows: number, columns: number) => tensors.matrix(prefix + name, rows, columns);
  const norm = (name: string): Norm => tensors.norm(prefix + name, true, [width]);
  const headLength = width / heads;
  const feed = (suffix: string): FeedForwardGraphStep => ({
    kind: "feedForward",
    gate: null,
    up: matrix(`ffn_up${suffix}`, feedForward, width),
    down: matrix(`ffn_down${suffix}`, width, feedForward),
    activation: "silu",
    postNorm: null,
    factor: feedForwardFactor,
  });
  const kernelLength = tensors.columnsOf(`${prefix}conv_dw`) ?? 0;
  return [
    { kind: "norm", norm: norm("ffn_norm") },
    feed(""),
    { kind: "norm", norm: norm("ln1") },
    {
      kind: "relativeAttention",
      query: matrix("attn_q", width, width),
      key: matrix("attn_k", width, width),
      value: matrix("attn_v", width, width),
      output: matrix("attn_out", width, width),
      relativePosition: matrix("linear_pos", width, width),
      ...{ behind: Number.POSITIVE_INFINITY, ahead: Number.POSITIVE_INFINITY, softcap: 0, encoding: "interleaved" },
      contentBias: tensors.vector(`${prefix}pos_bias_u`, headLength, heads),
      positionBias: tensors.vector(`${prefix}pos_bias_v`, headLength, heads),
      ...{ queryFactor: 1 / Math.sqrt(headLength), keyFactor: 1, queryScale: null, keyScale: null, postNorm: null },
    },
    { kind: "norm", norm: norm("norm_conv") },
    {
      kind: "convolutionModule",
      pointwise: matrix("conv_pw1", 2 * width, width),
      kernel: tensors.vector(`${prefix}conv_dw.weight`, kernelLength, width),
      ...{ kernelLength, ahead: Math.floor(kernelLength / 2) },
      bias: tensors.vector(`${prefix}conv_dw.bias`, width),
      norm: { of: "affine", norm: norm("conv_norm") },
      output: matrix("conv_pw2", width, width),
    },
    { kind: "norm", norm: norm("ffn_norm_1") },
    feed("_1"),
    { kind: "hiddenNorm", norm: norm("ln2") },
  ];
}
