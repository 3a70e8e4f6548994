// Memory layout of a compute thread: its rows of the weights, its pages of the KV cache, and scratch memory for one
// pass. This file only computes addresses and sizes; compute-thread.ts fills the memory. Parts of the memory that are
// never written use address space but no physical memory.
import { ServerError } from "../../../runtime/errors.ts";
import type { TensorInfo } from "../../files/gguf/tensors.ts";
import { type AdapterScratch, layOutScratch } from "../adapters/pass.ts";
import { layOutRelative } from "../audio/conformer/relative-scratch.ts";
import { rowBytes } from "../graph/graph-tensors.ts";
import { projectorMatrices } from "../graph/projector-matrices.ts";
import { classifierPieces, matrices, stepShares, threadPieces, vectors } from "../graph/weight-lists.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import { expertRows } from "../pass/expert-routing.ts";
import { type DividedGraph, kvLayers, type PartitionPlan, rowGrain, type Share } from "../plan/partition-plan.ts";
import { resamplerOf } from "../vision/vision-outer-layers.ts";

/** Address of the first byte after the WebAssembly page that the kernels reserve. */
const firstByte = 65_536;
const wasmPageBytes = 65_536;
export const longestMemoryPages = 65_536;
const longestMemoryBytes = longestMemoryPages * wasmPageBytes;
const alignment = 64;
/**
 * Bytes of the staging buffer: rows are read from the file and packed 256 KiB at a time. The buffer overlaps the
 * scratch memory of passes.
 */
const stagingBytes = 1 << 18;
const floatBytes = 4;
/** Number of floats that attend() writes after the weighted sum of a head's values. */
export const partialTail = 4;

/**
 * Memory for a resampler on one thread: the keys and values of the thread's heads, and the page list that attend()
 * reads.
 */
export interface ResamplerMemory {
  readonly heads: number;
  readonly pageBytes: number;
  readonly pages: number;
  readonly pageList: number;
}

export interface ThreadMemory {
  readonly wasmPages: number;
  /** Addresses of the packed matrix slices, by matrix name, and of the norms' vectors, by tensor name. */
  readonly weights: ReadonlyMap<string, number>;
  /** Addresses of the biases of this thread's rows, by matrix name. Padding rows have zeros. */
  readonly biases: ReadonlyMap<string, number>;
  /** Addresses of the factors by which the results of this thread's rows are multiplied, by matrix name. */
  readonly scales: ReadonlyMap<string, number>;
  readonly kv: number;
  readonly kvPageBytes: number;
  /**
   * Number of bytes from the start of one layer's pages to the start of the next layer's pages; 0 if all layers use the
   * same pages.
   */
  readonly kvLayerBytes: number;
  /** Hidden states: floats [tokens][width]. */
  readonly hidden: number;
  /** Input rows of a product, before prepare() converts them. */
  readonly input: number;
  readonly prepared: number;
  /**
   * Whole rows, joined from the results of all threads: queries, keys and values, or the inner state of a feed-forward.
   * At the end of a pass: the hidden states of the output tokens.
   */
  readonly joined: number;
  /** Slabs: each thread's results of the current step. One slab per thread, `slabBytes` apart. */
  readonly slabs: number;
  readonly slabBytes: number;
  /** Products with the matrix `up`, the second factor in a gated feed-forward. RelativeAttention uses it for the encodings of distances. */
  readonly gated: number;
  /** Clamped input rows of a product; 0 if no matrix clamps its inputs. */
  readonly clamped: number;
  /** Input rows of one expert; 0 if the model has no experts. */
  readonly gathered: number;
  readonly logits: number;
  /** Rotation tables of the rotary position embedding (RoPE): one per `Rope` of the model, `rotationBytes` apart. */
  readonly rotation: number;
  readonly rotationBytes: number;
  /** Address of the slopes of the position bias, one float per head; 0 if the model has no position bias. */
  readonly slopes: number;
  /** Scratch memory of attention with relative positions; see relative-scratch.ts. */
  readonly relative: number;
  /** Page list that attend() reads: pairs of a page's address and the position of its first token. */
  readonly pageList: number;
  readonly pageListBytes: number;
  /** Memory of the resampler of an image encoder; null if it has none. */
  readonly resampler: ResamplerMemory | null;
  readonly staging: number;
  readonly stagingBytes: number;
  /**
   * Scratch memory for LoRA adapters; null if the model cannot have adapters. The adapters themselves are stored after
   * all other data.
   */
  readonly adapters: AdapterScratch | null;
}

/**
 * Returns the size in bytes of a slab. A slab has room for the results of one step on one thread. All threads use the
 * same size, that of the largest results.
 */
export function slabBytes(plan: PartitionPlan, divided: DividedGraph): number {
  const { passTokens, shape } = plan;
  const conformerShares = plan.graph.conformer ? divided.embedding : [];
  const widest = Math.max(
    shape.width,
    shape.heads * (shape.headLength + partialTail),
    ...divided.layers.flat().flatMap((step) =>
      stepShares(step)
        .flat()
        .map(({ stride }) => stride),
    ),
    ...[...divided.classifier, ...divided.projector, conformerShares].flat().map(({ stride }) => stride),
    ...resamplerStrides(plan, divided),
    ...divided.dense.map(({ stride }) => stride),
  );
  const inner = divided.layers.flat().flatMap((step) => (step.kind === "experts" ? step.up : []));
  const widestInner = Math.max(0, ...inner.map(({ stride }) => stride));
  const floats = Math.max(passTokens * widest, expertRows(shape, passTokens) * widestInner);
  return align(floats * floatBytes);
}

/** Returns, for each thread, the number of floats that attend() writes for a query of the resampler. */
function resamplerStrides({ graph }: PartitionPlan, { resampler }: DividedGraph): number[] {
  const step = graph.vision && resamplerOf(graph.vision.projector);
  if (!step || !resampler) return [];
  return resampler.key.map(({ stride }) => (stride / step.headLength) * (step.headLength + partialTail));
}

export function layOut(
  plan: PartitionPlan,
  divided: DividedGraph,
  kernels: KernelExports,
  thread: number,
): ThreadMemory {
  const { shape, passTokens, maxRows, maxOutputs, blocksPerSequence, threads, pagesPerThread } = plan;
  const arena = new Arena();
  const weights = new Map<string, number>();
  const biases = new Map<string, number>();
  const scales = new Map<string, number>();
  for (const { matrix, padded } of [...threadPieces(divided, thread), ...classifierPieces(divided, thread)]) {
    const { name, tensor, columns, bias, scale, count = 1 } = matrix;
    if (!weights.has(name))
      weights.set(name, arena.take((kernels.matrixBytes(tensor.type, padded, columns) >>> 0) * count));
    if (bias && !biases.has(name)) biases.set(name, arena.take(padded * floatBytes));
    if (scale) scales.set(name, arena.take(padded * floatBytes));
  }
  for (const { name, bytes } of vectors(plan)) weights.set(name, arena.take(bytes));

  const kvPageBytes = kernels.kvPageBytes(plan.kvType, shape.kvHeads, shape.headLength, plan.blockTokens);
  const kvPoolBytes = kvPageBytes * pagesPerThread;
  const kv = arena.take(kvPoolBytes * kvLayers(plan));
  // All layers of an encoder use the same pages, because keys and values are discarded after each layer.
  const kvLayerBytes = plan.graph.isEncoder ? 0 : kvPoolBytes;

  const attentionWidth = shape.heads * shape.headLength;
  const classifier = plan.mixture?.classifier ?? [];
  const { vision, audio, conformer } = plan.graph;
  const projector = [...projectorMatrices(plan.graph), ...(conformer ? [plan.graph.embedding] : [])];
  const inputRowWidth = widestInputRow(plan);
  const resampler = vision && resamplerOf(vision.projector);
  const joinedWidth = Math.max(
    attentionWidth + 2 * shape.kvHeads * shape.headLength,
    shape.feedForward,
    shape.experts?.count ?? 0,
    shape.width,
    ...[...classifier, ...projector].map(({ rows }) => rows),
  );
  const expertLength = shape.experts?.feedForward ?? 0;
  const joinedFloats = Math.max(passTokens * joinedWidth, expertRows(shape, passTokens) * expertLength);
  const inner = [...classifier, ...plan.graph.pooling.dense].map(({ columns }) => columns);
  const widestInput = Math.max(shape.width, attentionWidth, shape.feedForward, expertLength, inputRowWidth, ...inner);
  const rows = (floats: number) => arena.take(passTokens * floats * floatBytes);
  const types = new Set(matrices(plan).map(({ tensor }) => tensor.type));
  const projected = projectedRows(plan);
  const widestProjected = Math.max(0, ...projector.map(({ columns }) => columns));
  const resampled = resampler?.key.columns ?? 0;
  const clampedFloats = Math.max(0, ...matrices(plan).map(({ clamp, columns }) => (clamp ? columns : 0)));
  // Memory for the rows between the two matrices of an audio projector.
  const gatedFloats = audio ? Math.ceil((projected * widestProjected) / passTokens) : 0;
  const preparedBytes = Math.max(
    ...[...types].flatMap((type) => [
      kernels.activationBytes(type, passTokens, widestInput),
      kernels.activationBytes(type, projected, widestProjected),
    ]),
  );
  const slab = slabBytes(plan, divided);
  const pageListBytes = maxRows * Math.ceil(blocksPerSequence / threads) * 8;
  const scratch = arena.used;
  const rotationBytes = align(passTokens * shape.rotated * floatBytes);
  const memory = {
    weights,
    biases,
    scales,
    kv,
    kvPageBytes,
    kvLayerBytes,
    hidden: rows(shape.width),
    input: rows(Math.max(shape.width, attentionWidth, inputRowWidth, resampled, gatedFloats)),
    prepared: arena.take(preparedBytes),
    joined: arena.take(joinedFloats * floatBytes),
    slabs: arena.take(slab * threads),
    slabBytes: slab,
    gated: arena.take(slab),
    clamped: clampedFloats > 0 ? rows(clampedFloats) : 0,
    gathered: shape.experts ? rows(shape.width) : 0,
    logits: arena.take(maxOutputs * (divided.output[thread] as Share).stride * floatBytes),
    rotation: arena.take(rotationBytes * shape.ropes.length),
    rotationBytes,
    slopes: shape.alibi > 0 ? arena.take(shape.heads * floatBytes) : 0,
    relative: arena.take(layOutRelative(plan, 0).end),
    pageList: arena.take(pageListBytes),
    pageListBytes,
    resampler: resampler && layOutResampler(plan, divided, kernels, thread, arena),
    adapters: layOutScratch(plan, (bytes) => arena.take(bytes)),
    staging: scratch,
    stagingBytes: Math.max(stagingBytes, longestPanelBytes(plan)),
  };
  const end = Math.max(arena.used, scratch + memory.stagingBytes);
  if (end > longestMemoryBytes) throw tooLarge(plan, end);
  return { ...memory, wasmPages: Math.ceil(end / wasmPageBytes) };
}

/** Returns the maximum number of rows that a projector makes embeddings of; 0 for text models. */
function projectedRows({ graph, passTokens }: PartitionPlan): number {
  const { vision, audio, conformer } = graph;
  if (vision) return Math.ceil(passTokens / vision.merge.side ** 2);
  if (audio) return Math.ceil(passTokens / audio.stack);
  return conformer ? passTokens : 0;
}

/** Returns the number of floats of the widest input row before the layers (patch embedding, convolutions); 0 for text models. */
function widestInputRow({ graph, inputFloats }: PartitionPlan): number {
  const { vision, audio, conformer } = graph;
  if (vision) return inputFloats;
  // A position of an audio encoder has two input rows, but only one of them is in memory at a time.
  if (audio) return Math.max(inputFloats / 2, audio.convolution.columns);
  const subsampling = conformer?.subsampling;
  if (!subsampling) return 0;
  return Math.max(subsampling.inputProjection.columns, ...subsampling.stages.map(({ matrix }) => matrix.columns));
}

/** Lays out a thread's memory for the resampler: keys and values of the thread's heads, and the page list. */
function layOutResampler(
  { passTokens, blockTokens, kvType, graph }: PartitionPlan,
  { resampler }: DividedGraph,
  kernels: KernelExports,
  thread: number,
  arena: Arena,
): ResamplerMemory {
  const step = graph.vision && resamplerOf(graph.vision.projector);
  const heads = (resampler?.key[thread]?.stride ?? 0) / (step?.headLength ?? 1);
  const pageBytes = kernels.kvPageBytes(kvType, heads, step?.headLength ?? 0, blockTokens);
  const blocks = Math.ceil(passTokens / blockTokens);
  return { heads, pageBytes, pages: arena.take(pageBytes * blocks), pageList: arena.take(blocks * 8) };
}

/**
 * Returns the maximum size in bytes of 16 consecutive rows in the file, over all matrices. 16 is the minimum number of
 * rows that can be packed at once.
 */
function longestPanelBytes(plan: PartitionPlan): number {
  return Math.max(
    ...matrices(plan).map(({ tensor, columns, filled }) =>
      Math.ceil((filled ? (columns * tensor.bytes) / elements(tensor) : rowBytes(tensor)) * rowGrain),
    ),
  );
}

function elements({ shape }: TensorInfo): number {
  return shape.reduce((product, length) => product * length, 1);
}

function tooLarge({ threads, pagesPerThread, graph }: PartitionPlan, bytes: number): ServerError {
  const gib = (bytes / 2 ** 30).toFixed(1);
  if (graph.vision || graph.audio || graph.conformer) {
    const message =
      `the encoder of the projector file takes ${gib} GiB on each of ${threads} compute threads; a WebAssembly memory ends at ` +
      "4 GiB: lower threads, or use a projector file with smaller images";
    return new ServerError("unsupported", message, { param: "mmproj" });
  }
  const settings = graph.isEncoder ? "max_num_batched_tokens" : "kv_cache or max_seqs";
  return new ServerError(
    "config_invalid",
    `the model's share of each of ${threads} compute threads is ${gib} GiB (with ${pagesPerThread} pages of KV cache); a ` +
      `WebAssembly memory ends at 4 GiB: raise threads, lower ${settings}, or use --engine llama`,
    { param: "engine" },
  );
}

function align(bytes: number): number {
  return Math.ceil(bytes / alignment) * alignment;
}

class Arena {
  used = firstByte;

  take(bytes: number): number {
    const address = this.used;
    this.used += align(bytes);
    return address;
  }
}
