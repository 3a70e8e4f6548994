// Graph of an image encoder: a vision transformer (ViT) and the projector after it, built from a projector file. Each layer has a norm
// before each block, and bidirectional attention. Positions are either learned or a rope over rows and columns. Tensor names are those of
// llama.cpp's mtmd.
import { ServerError } from "../../../runtime/errors.ts";
import { isAudioTensor } from "../../files/projector/audio-projector.ts";
import type { ProjectorFile } from "../../files/projector/image-projector.ts";
import type { EncoderSizes, ProjectorKind } from "../../files/projector/image-rules.ts";
import type { AttentionGraphStep, FeedForwardGraphStep, Graph, GraphStep, HeadNorms } from "../graph/graph.ts";
import type { GraphTensors, Matrix, Norm } from "../graph/graph-tensors.ts";
import { checkHeads, type MediaGraph, mediaGraphParts, mediaShape, mediaTensors } from "../graph/media-graph.ts";
import { plainFrequencies, type Rope } from "../graph/ropes.ts";
import type { ProjectorStep, VisionOuterLayers } from "./vision-outer-layers.ts";

/** Number of positions per side of MiniCPM-V's square position table. The file has no key for this number. */
const minicpmBuckets = 70;
/** Width and number of layers of the largest InternVL encoder, which has RMS norms instead of layer norms. */
const largestInternvl = { width: 3200, layers: 45 };
/** Epsilon of the norm in InternVL's projector. The file has no key for this number. */
const internvlEpsilon = 1e-5;
/** Number of floats in a head of MiniCPM-V's resampler. */
const resamplerHeadLength = 128;
/** Table of positions in MiniCPM-V's files. It is ignored, because resampler.ts computes the same positions. */
const computedPositions = "resampler.pos_embed_k";

/**
 * Builds the graph. Each patch is a token, whose input row contains the pixels of the patch, padded. Throws `model_file_invalid` or
 * `unsupported` naming the tensor.
 */
export function buildVisionGraph(file: ProjectorFile): MediaGraph {
  const { table, sizes } = file;
  const audioTensors = [...table.tensors.keys()].filter((name) => isAudioTensor(name));
  const tensors = mediaTensors(table, [computedPositions, ...audioTensors]);
  const { width, heads, patches, layers } = sizes;
  const { projector } = file.rules;
  const isSquares = projector === "gemma4uv";
  checkHeads("image", sizes);
  const has = (name: string) => table.tensors.has(name);
  const norm = (name: string) => tensors.norm(name, true, [width]);
  const hasClass = has("v.class_embd");
  const tokens = Math.max(patches + (hasClass ? 1 : 0), sizes.queries);
  const positionTable = positionTableOf(tensors, file);
  const pixels = 3 * sizes.patchSize ** 2;
  const patchShape = isSquares ? [pixels, width] : [sizes.patchSize, sizes.patchSize, 3, width];
  const patchFilled = { rows: width, columns: pixels };
  const patch = tensors.padded("v.patch_embd", patchShape, patchFilled);
  const secondName = "v.patch_embd.weight.1";
  const ropes = ropesOf(projector, width / heads);
  const found = Array.from({ length: layers }, (_, layer) => layerSteps(tensors, file, layer, ropes.length));
  const graph: Graph = {
    ...mediaGraphParts,
    pairing: projector === "pixtral" ? "neighbours" : "halves",
    normKind: hasRmsNorms(projector, sizes) ? "rms" : "layer",
    embedding: patch,
    positions: positionsOf(tensors, positionTable, ropes.length > 0 ? null : tokens, width),
    embeddingNorm: isSquares ? norm("v.patch_norm.3") : has("v.pre_ln.weight") ? norm("v.pre_ln") : null,
    outputNorm: outputNorm(tensors, projector, width),
    layers: found.map(({ steps }) => steps),
    vision: {
      patchNorm: isSquares ? tensors.norm("v.patch_norm.1", true, [pixels]) : null,
      hiddenNorm: isSquares ? norm("v.patch_norm.2") : null,
      classEmbedding: hasClass ? tensors.vector("v.class_embd", width) : null,
      secondEmbedding: table.tensors.has(secondName) ? tensors.paddedTensor(secondName, patchShape, patchFilled) : null,
      merge: { kind: mergeKind(projector), side: sizes.mergeSide },
      positionTable,
      rowEnd: projector === "pixtral" ? tensors.vector("v.token_embd.img_break", sizes.length) : null,
      projector: projectorSteps(tensors, file),
      stacked: sizes.stackedLayers.map((layer) => ({ layer, steps: stackedSteps(tensors, file, layer) })),
      length: sizes.length,
    },
  };
  if (projector === "mlp") tensors.leaveOutLayer(`v.blk.${layers}.`);
  tensors.checkAllUsed();
  const feedForward = found[0]?.feedForward ?? sizes.feedForward;
  const rotated = width / heads / Math.max(1, ropes.length);
  const shape = mediaShape({ ...sizes, feedForward, tokens, ropes, rotated });
  return { graph, shape, tokens, rows: 1 + maxWindows(sizes), inputFloats: patch.columns };
}

/** Returns the matrix of positions; null if there is none. `count`: number of positions if tiles have one size; null = no positions. */
function positionsOf(
  tensors: GraphTensors,
  table: VisionOuterLayers["positionTable"],
  count: number | null,
  width: number,
): Matrix | null {
  const name = "v.position_embd";
  if (table === null) return count === null ? null : tensors.matrix(name, count, width);
  return table.lookup === "sum" ? table.columns : tensors.matrix(name, table.side ** 2, width);
}

/** Returns the position table of models with tiles of any size. Throws `model_file_invalid` if the table of the file does not fit. */
function positionTableOf(
  tensors: GraphTensors,
  { rules, sizes, table }: ProjectorFile,
): VisionOuterLayers["positionTable"] {
  if (rules.projector === "resampler") return { side: minicpmBuckets, lookup: "nearest" };
  const stored = table.tensors.get("v.position_embd.weight")?.shape[1];
  if (rules.projector === "gemma4v" || rules.projector === "gemma4uv") {
    // The longest side of a tile: that of a tile with one row of embeddings. Further positions are not used.
    const longest = sizes.patches / sizes.mergeSide;
    const positions = stored ?? longest;
    if (positions >= longest) {
      const shape = [sizes.width, positions, 2];
      const [columns, rows] = tensors.parts("v.position_embd", shape, [0, positions], longest) as [Matrix, Matrix];
      return { lookup: "sum", columns, rows };
    }
    const message = `v.position_embd.weight has ${positions} positions per side; expected at least ${longest}: fetch the file again`;
    throw new ServerError("model_file_invalid", message, { param: "mmproj" });
  }
  if (rules.projector !== "qwen3vl_merger") return null;
  const positions = stored ?? 0;
  const side = Math.sqrt(positions);
  if (Number.isInteger(side) && side >= 2) return { side, lookup: "linear" };
  const message = `v.position_embd.weight has ${positions} positions; expected the square of a whole number above 1: fetch the file again`;
  throw new ServerError("model_file_invalid", message, { param: "mmproj" });
}

function hasRmsNorms(projector: ProjectorKind, { width, layers }: EncoderSizes): boolean {
  if (projector === "internvl") return width === largestInternvl.width && layers === largestInternvl.layers;
  return projector === "qwen2.5vl_merger" || projector === "pixtral" || projector === "gemma4v";
}

function outputNorm(tensors: GraphTensors, projector: ProjectorKind, width: number): Norm | null {
  // Mistral 3 stores the norm after its layers with the projector's tensors, because it precedes the merger of patches.
  const name = projector === "pixtral" ? "mm.input_norm" : "v.post_ln";
  return tensors.has(name) ? tensors.norm(name, true, [width]) : null;
}

function mergeKind(projector: ProjectorKind): VisionOuterLayers["merge"]["kind"] {
  switch (projector) {
    case "gemma3":
    case "gemma4v":
      return "average";
    case "qwen2vl_merger":
    case "qwen2.5vl_merger":
    case "qwen3vl_merger":
      return "adjacent";
    case "pixtral":
      return "interleaved";
    default:
      return "concatenate";
  }
}

/**
 * Returns the ropes of the layers. The first half of the rotated pairs is rotated by the patch's row, the second half by its column. In
 * Qwen, both halves have the same frequencies. In Pixtral, the frequencies alternate between rows and columns. In Gemma 4, one
 * rope rotates the first half of a head by the column, and another one the second half by the row.
 */
function ropesOf(projector: ProjectorKind, headLength: number): Rope[] {
  if (projector === "gemma4v") {
    const frequencies = plainFrequencies(gemma4RopeBase, headLength / 4);
    const [row, column] = [1, 2];
    return [column, row].map((axis) => ({
      frequencies,
      magnitude: 1,
      axes: new Uint8Array(headLength / 4).fill(axis),
    }));
  }
  const isPixtral = projector === "pixtral";
  if (!isPixtral && mergeKind(projector) !== "adjacent") return [];
  const rows = plainFrequencies(ropeBase, headLength / 4);
  const columns = isPixtral ? rows.map((frequency) => frequency * ropeBase ** (-2 / headLength)) : rows;
  const axes = Uint8Array.from({ length: headLength / 2 }, (_, pair) => (pair < headLength / 4 ? 1 : 2));
  return [{ frequencies: Float64Array.of(...rows, ...columns), magnitude: 1, axes }];
}

const ropeBase = 10_000;
const gemma4RopeBase = 100;
/** Epsilon of the norm before the projection of Gemma 4 12B. */
const rmsEpsilon = 1e-6;

/** Returns the maximum number of windows in a tile. */
function maxWindows(sizes: EncoderSizes): number {
  if (sizes.windows === null) return 0;
  // Windows consist of squares; the patches of a square are merged into one embedding. A tile with a single row of squares has the most
  // windows, because each window then has only one row of squares.
  const embeddings = sizes.patches / sizes.mergeSide ** 2;
  return Math.ceil(embeddings / sizes.windows.side);
}

function layerSteps(
  tensors: GraphTensors,
  { rules, sizes }: ProjectorFile,
  layer: number,
  ropeCount: number,
): { readonly steps: GraphStep[]; readonly feedForward: number } {
  const { width, heads, activation, feedForward, windows } = sizes;
  const isGemma4 = rules.projector === "gemma4v";
  const prefix = `v.blk.${layer}.`;
  const norm = (name: string): Norm => tensors.norm(prefix + name, true, [width]);
  const postNorm = (name: string): Norm | null => (tensors.has(prefix + name) ? norm(name) : null);
  const isFused = tensors.has(`${prefix}attn_qkv`);
  const [query, key, value] = (
    isFused
      ? tensors.fused(`${prefix}attn_qkv`, [width, width, width], width)
      : ["attn_q", "attn_k", "attn_v"].map((name) => tensors.matrix(prefix + name, width, width))
  ) as [Matrix, Matrix, Matrix];
  const attention: AttentionGraphStep = {
    kind: "attention",
    ...{ query, key, value, norms: headNorms(tensors, prefix, isGemma4 ? null : width, width / heads), softcap: 0 },
    postNorm: postNorm("attn_post_norm"),
    rope: ropeCount > 0 ? 0 : null,
    ...(ropeCount > 1 && { secondRope: 1 }),
    normsValues: isGemma4,
    inWindows: windows !== null && (layer + 1) % windows.interval !== 0,
    output: scaled(tensors, `${prefix}ls1.weight`, tensors.matrix(`${prefix}attn_out`, width, width)),
    behind: Number.POSITIVE_INFINITY,
    ahead: Number.POSITIVE_INFINITY,
    // The norms of Gemma 4's queries and keys contain the scale.
    scale: isGemma4 ? 1 : 1 / Math.sqrt(width / heads),
  };
  const feed = {
    ...feedForwardStep(tensors, prefix, { width, activation, feedForward }),
    postNorm: postNorm("ffn_post_norm"),
  };
  const steps: GraphStep[] = [
    { kind: "norm", norm: norm("ln1") },
    attention,
    { kind: "norm", norm: norm("ln2") },
    feed,
  ];
  return { steps, feedForward: feed.up.rows };
}

/**
 * Returns the norms of queries and keys, applied to all heads of a token as one row or to each head; null if the file has none. `width`: null =
 * only norms of each head are known.
 */
function headNorms(tensors: GraphTensors, prefix: string, width: number | null, headLength: number): HeadNorms | null {
  if (!tensors.has(`${prefix}attn_q_norm`)) return null;
  const shapes = [...(width === null ? [] : [[width]]), [headLength]];
  const [query, key] = ["attn_q_norm", "attn_k_norm"].map((name) => tensors.norm(prefix + name, true, ...shapes)) as [
    Norm,
    Norm,
  ];
  return { query, key, span: query.weight.shape[0] === width ? "row" : "head" };
}

/** Returns the matrix with one scale factor per row of its results (layer scale); returns it unchanged if the file has no such factors. */
function scaled(tensors: GraphTensors, name: string, matrix: Matrix): Matrix {
  return tensors.has(name.replace(/\.weight$/, "")) ? { ...matrix, scale: tensors.vector(name, matrix.rows) } : matrix;
}

/** Builds the feed-forward step. In some older files, the names of the matrices `up` and `down` are swapped. */
function feedForwardStep(
  tensors: GraphTensors,
  prefix: string,
  { width, activation, feedForward }: Pick<EncoderSizes, "width" | "activation" | "feedForward">,
): FeedForwardGraphStep {
  const isSwapped = feedForward !== width && tensors.columnsOf(`${prefix}ffn_down`) === width;
  const [upName, downName] = isSwapped ? ["ffn_down", "ffn_up"] : ["ffn_up", "ffn_down"];
  const up = tensors.padded(prefix + upName, [width, feedForward], { rows: feedForward, columns: width });
  const down = tensors.padded(prefix + downName, [feedForward, width], { rows: width, columns: feedForward });
  // Each row of `up` computes one column of `down`'s input, so both matrices are padded to the same inner length.
  const inner = Math.max(up.rows, down.columns);
  const gate = tensors.has(`${prefix}ffn_gate`)
    ? tensors.padded(`${prefix}ffn_gate`, [width, feedForward], { rows: feedForward, columns: width })
    : null;
  return {
    kind: "feedForward",
    gate: gate && { ...gate, rows: inner },
    up: { ...up, rows: inner },
    down: scaled(tensors, `${prefix}ls2.weight`, { ...down, columns: inner }),
    activation,
    postNorm: null,
  };
}

function projectorSteps(tensors: GraphTensors, { rules, sizes, table }: ProjectorFile): ProjectorStep[] {
  const { width, length, mergeSide, epsilon } = sizes;
  const rowsOf = (name: string) => table.tensors.get(`${name}.weight`)?.shape[1] ?? length;
  const matrix = (name: string, rows: number, columns: number): Matrix =>
    tensors.padded(name, [columns, rows], { rows, columns });
  switch (rules.projector) {
    case "gemma3":
      return [
        { kind: "norm", of: "rms", epsilon, norm: tensors.norm("mm.soft_emb_norm", false, [width]) },
        {
          kind: "matrix",
          matrix: tensors.padded("mm.input_projection", [length, width], { rows: length, columns: width }, true),
          activation: null,
        },
      ];
    case "gemma4v": {
      const vector = (name: string) => (table.tensors.has(name) ? tensors.vector(name, width) : null);
      return [
        { kind: "standardise", factor: Math.sqrt(width), mean: vector("v.std_bias"), scale: vector("v.std_scale") },
        { kind: "norm", of: "rms", epsilon, norm: null },
        { kind: "matrix", matrix: matrix("mm.input_projection", length, width), activation: null },
      ];
    }
    case "gemma4uv":
      return [
        { kind: "norm", of: "rms", epsilon: rmsEpsilon, norm: null },
        { kind: "matrix", matrix: matrix("mm.input_projection", length, width), activation: null },
      ];
    case "idefics3":
      return [{ kind: "matrix", matrix: matrix("mm.model.fc", length, width * mergeSide ** 2), activation: null }];
    case "qwen2vl_merger":
    case "qwen2.5vl_merger":
    case "qwen3vl_merger":
      return mlpSteps(tensors, ["mm.0", "mm.2"], width * mergeSide ** 2, rowsOf("mm.0"), vectorLength(sizes));
    case "internvl": {
      const columns = width * mergeSide ** 2;
      const norm = tensors.norm("mm.model.mlp.0", true, [columns]);
      const names = ["mm.model.mlp.1", "mm.model.mlp.3"] as const;
      return [
        { kind: "norm", of: "layer", epsilon: internvlEpsilon, norm },
        ...mlpSteps(tensors, names, columns, rowsOf(names[0]), length),
      ];
    }
    case "pixtral": {
      const merger: ProjectorStep[] = tensors.has("mm.patch_merger")
        ? [{ kind: "matrix", matrix: matrix("mm.patch_merger", width, width * mergeSide ** 2), activation: null }]
        : [];
      return [...merger, ...mlpSteps(tensors, ["mm.1", "mm.2"], width, rowsOf("mm.1"), length)];
    }
    case "resampler":
      return resamplerSteps(tensors, sizes);
    case "mlp":
      if (table.tensors.has("mm.2.weight")) return mlpSteps(tensors, ["mm.0", "mm.2"], width, rowsOf("mm.0"), length);
      return [{ kind: "matrix", matrix: matrix("mm.0", rowsOf("mm.0"), width), activation: "gelu" }];
  }
}

/** Returns the steps of the merger after a layer: a norm of the merged row, and two matrices. */
function stackedSteps(tensors: GraphTensors, { sizes, table }: ProjectorFile, layer: number): ProjectorStep[] {
  const columns = sizes.width * sizes.mergeSide ** 2;
  const name = `v.deepstack.${layer}`;
  const inner = table.tensors.get(`${name}.fc1.weight`)?.shape[1] ?? columns;
  return [
    { kind: "norm", of: "layer", epsilon: sizes.epsilon, norm: tensors.norm(`${name}.norm`, true, [columns]) },
    ...mlpSteps(tensors, [`${name}.fc1`, `${name}.fc2`], columns, inner, vectorLength(sizes)),
  ];
}

/** Returns the number of floats in each vector of an embedding. */
function vectorLength({ length, stackedLayers }: EncoderSizes): number {
  return length / (1 + stackedLayers.length);
}

function resamplerSteps(tensors: GraphTensors, { width, length, queries, epsilon }: EncoderSizes): ProjectorStep[] {
  if (length % resamplerHeadLength !== 0) {
    const message = `the resampler has rows of ${length} floats; expected a multiple of ${resamplerHeadLength}`;
    throw new ServerError("unsupported", message, { param: "mmproj" });
  }
  const norm = (name: string) => tensors.norm(`resampler.ln_${name}`, true, [length]);
  const matrix = (name: string) => tensors.matrix(`resampler.attn.${name}`, length, length);
  const plain = { kind: "matrix", activation: null } as const;
  return [
    { ...plain, matrix: tensors.matrix("resampler.kv", length, width) },
    { kind: "norm", of: "layer", epsilon, norm: norm("kv") },
    {
      kind: "resampler",
      queries: tensors.paddedTensor("resampler.query", [length, queries], { rows: queries, columns: length }),
      norm: norm("q"),
      ...{ query: matrix("q"), key: matrix("k"), value: matrix("v"), headLength: resamplerHeadLength, epsilon },
    },
    { ...plain, matrix: matrix("out") },
    { kind: "norm", of: "layer", epsilon, norm: norm("post") },
    { ...plain, matrix: tensors.matrix("resampler.proj", length, length) },
  ];
}

/** Returns the steps of a projector with two matrices and a gelu between them. */
function mlpSteps(
  tensors: GraphTensors,
  [firstName, secondName]: readonly [string, string],
  columns: number,
  inner: number,
  length: number,
): ProjectorStep[] {
  const first = tensors.padded(firstName, [columns, inner], { rows: inner, columns });
  const second = tensors.padded(secondName, [inner, length], { rows: length, columns: inner });
  // Each row of the first matrix computes one column of the second matrix's input, so both are padded to the same inner length.
  const rows = Math.max(first.rows, second.columns);
  return [
    { kind: "matrix", matrix: { ...first, rows }, activation: "gelu" },
    { kind: "matrix", matrix: { ...second, columns: rows }, activation: null },
  ];
}
