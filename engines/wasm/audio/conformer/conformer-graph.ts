// Graph of a conformer: the audio encoder of Gemma 4, built from a projector file. A layer has two feed-forwards, whose
// results are halved, with local attention and a convolution module between them. Tensor names are those of llama.cpp's mtmd.
import { type AudioProjectorFile, isAudioTensor } from "../../../files/audio-projector.ts";
import type { FeedForwardGraphStep, Graph, GraphStep } from "../../graph/graph.ts";
import type { GraphTensors, Norm } from "../../graph/graph-tensors.ts";
import { checkHeads, type MediaGraph, mediaGraphParts, mediaShape, mediaTensors } from "../../graph/media-graph.ts";
import { kernelSide, stridedLength } from "./steps.ts";

const feedForwardFactor = 0.5;
/** Local attention of Gemma 4, with the factors of transformers: softplus(1) / ln 2 for keys, and 1 / ln 2 for queries. */
const [reach, softcap, keyFactor, queryFactor] = [12, 50, Math.log(1 + Math.E) / Math.LN2, 1 / Math.LN2];

/**
 * Builds the graph. Each position of the encoder is a token, whose input row contains four frames of the spectrogram. Throws
 * `model_file_invalid` or `unsupported` naming the tensor.
 */
export function buildConformerGraph({ table, sizes, rules }: AudioProjectorFile): MediaGraph {
  const { width, bands, length, layers } = sizes;
  checkHeads("audio", sizes);
  const tensors = audioTensors(table);
  const vector = (name: string, count: number) => (tensors.has(name) ? tensors.vector(`${name}.weight`, count) : null);
  const channelsOf = (number: number) => table.tensors.get(`a.conv1d.${number}.weight`)?.shape[3] ?? 0;
  const convolution = (number: number, inputs: number) => {
    const rows = channelsOf(number);
    const columns = inputs * kernelSide ** 2;
    return tensors.padded(`a.conv1d.${number}`, [kernelSide, kernelSide, inputs, rows], { rows, columns });
  };
  const channels = [channelsOf(0), channelsOf(1)] as const;
  const inputColumns = channels[1] * stridedLength(stridedLength(bands));
  const outputName = "a.pre_encode.out";
  const outputRows = tensors.rowsOf(outputName);
  const embedderColumns = outputRows ?? width;
  const graph: Graph = {
    ...mediaGraphParts,
    pairing: "halves",
    normKind: "rms",
    embedding: convolution(0, 1),
    positions: null,
    embeddingNorm: null,
    outputNorm: null,
    layers: Array.from({ length: layers }, (_, layer) => layerSteps(tensors, sizes, `a.blk.${layer}.`)),
    vision: null,
    conformer: {
      subsampling: {
        ...{ bands, channels },
        secondConvolution: convolution(1, channels[0]),
        norms: [vector("a.conv1d.0.norm", channels[0]), vector("a.conv1d.1.norm", channels[1])],
        inputProjection: tensors.padded("a.input_projection", [inputColumns, width], {
          rows: width,
          columns: inputColumns,
        }),
      },
      output: outputRows === null ? null : tensors.matrix(outputName, outputRows, width),
      embedderNorm: vector("mm.a.soft_emb_norm", embedderColumns),
      embedder: tensors.matrix("mm.a.input_projection", length, embedderColumns),
      length,
    },
  };
  tensors.checkAllUsed();
  const tokens = rules.windowTokens;
  const shape = mediaShape({ ...sizes, activation: "silu", tokens, ropes: [] });
  return { graph, shape, tokens, rows: 1, inputFloats: 4 * bands };
}

/**
 * Builds the graph of a projector that has no encoder: the input row of a token, which contains samples, is normed and projected. Throws
 * like buildConformerGraph().
 */
export function buildSamplesGraph({ table, sizes, rules }: AudioProjectorFile): MediaGraph {
  const { width, length } = sizes;
  const tensors = audioTensors(table);
  const embedder = tensors.matrix("mm.a.input_projection", length, width);
  const graph: Graph = {
    ...mediaGraphParts,
    ...{ pairing: "halves", normKind: "rms", positions: null, embeddingNorm: null, outputNorm: null },
    embedding: embedder,
    layers: [],
    vision: null,
    conformer: { subsampling: null, output: null, embedderNorm: null, embedder, length },
  };
  tensors.checkAllUsed();
  const tokens = rules.windowTokens;
  return {
    graph,
    shape: mediaShape({ ...sizes, activation: "silu", tokens, ropes: [] }),
    tokens,
    rows: 1,
    inputFloats: width,
  };
}

/** Opens the tensors of a projector file for the graph of its audio encoder, which ignores those of an image encoder. */
export function audioTensors(table: AudioProjectorFile["table"]): GraphTensors {
  const imageTensors = [...table.tensors.keys()].filter((name) => !isAudioTensor(name));
  return mediaTensors(table, imageTensors);
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
  const kernelLength = tensors.columnsOf(`${prefix}conv_dw`) ?? 0;
  return [
    { kind: "norm", norm: norm("ffn_norm") },
    feed(""),
    { kind: "norm", norm: norm(tensors.has(`${prefix}attn_pre_norm`) ? "attn_pre_norm" : "ln1") },
    {
      kind: "localAttention",
      query: matrix("attn_q", width, width),
      key: matrix("attn_k", width, width),
      value: matrix("attn_v", width, width),
      output: matrix("attn_out", width, width),
      relativePosition: matrix("attn_k_rel", width, width),
      ...{ reach, softcap, keyFactor, queryFactor: queryFactor / Math.sqrt(width / heads) },
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
      kernelLength,
      norm: optionalNorm("norm_conv"),
      output: matrix("conv_pw2", width, width),
    },
    { kind: "norm", norm: norm("ffn_norm_1") },
    feed("_1"),
    { kind: "hiddenNorm", norm: norm("ln2") },
  ];
}
