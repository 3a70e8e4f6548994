// Owns where everything lies in a compute thread's own memory: its rows of the weights, its pages of the KV cache, and
// scratch for one pass. Sizes only; compute-thread.ts fills them. Untouched parts cost address space, not memory.
import { ServerError } from "../../runtime/errors.ts";
import { type AdapterScratch, layOutScratch } from "./adapters/pass.ts";
import { type Blueprint, type DividedGraph, type DividedStep, kvLayers, type Piece, type Share } from "./blueprint.ts";
import type { KernelExports } from "./kernel-exports.ts";

/** The first page is the kernels' own. */
const firstByte = 65_536;
const wasmPageBytes = 65_536;
export const longestMemoryPages = 65_536;
const longestMemoryBytes = longestMemoryPages * wasmPageBytes;
const alignment = 64;
/** Rows are read from the file and packed a quarter of a megabyte at a time, through the scratch of a pass. */
const stagingBytes = 1 << 18;
const floatBytes = 4;
/** attend() writes so many floats more than a head's values. */
export const partialTail = 4;

export interface ThreadMemory {
  readonly wasmPages: number;
  /** Address of each packed matrix slice and each vector, by the tensor's name. */
  readonly weights: ReadonlyMap<string, number>;
  readonly kv: number;
  readonly kvPageBytes: number;
  /** From one layer's pages to the next's. */
  readonly kvLayerBytes: number;
  /** [tokens][width] */
  readonly hidden: number;
  /** Rows that go into a product, before they are prepared. */
  readonly input: number;
  readonly prepared: number;
  /** Whole rows: queries, keys and values, or a feed-forward's inner state; at last those whose logits are wanted. */
  readonly joined: number;
  /** One slab a thread, `slabBytes` apart: what each has computed of the step under way. */
  readonly slabs: number;
  readonly slabBytes: number;
  /** The other operand of a gated step. */
  readonly gated: number;
  readonly logits: number;
  readonly rotation: number;
  /** Pairs (address, first position) of the pages attend() is given. */
  readonly pageList: number;
  readonly pageListBytes: number;
  readonly staging: number;
  readonly stagingBytes: number;
  /** Null where the model takes no adapters; those themselves lie behind everything else. */
  readonly adapters: AdapterScratch | null;
}

/** Sizes of what the threads exchange must be equal in all of them: of the widest share. */
export function slabBytes({ passTokens, shape }: Blueprint, divided: DividedGraph): number {
  const widest = Math.max(
    shape.width,
    shape.heads * (shape.headLength + partialTail),
    ...divided.layers.flat().flatMap((step) => sharesOf(step).map(({ stride }) => stride)),
    ...divided.classifier.flat().map(({ stride }) => stride),
  );
  return align(passTokens * widest * floatBytes);
}

export function layOut(
  blueprint: Blueprint,
  divided: DividedGraph,
  kernels: KernelExports,
  thread: number,
): ThreadMemory {
  const { shape, passTokens, maxRows, maxOutputs, blocksPerSequence, threads, pagesPerThread } = blueprint;
  const arena = new Arena();
  const weights = new Map<string, number>();
  for (const { matrix, padded } of [...threadPieces(divided, thread), ...classifierPieces(divided, thread)]) {
    const { name, type } = matrix.tensor;
    if (!weights.has(name)) weights.set(name, arena.take(kernels.matrixBytes(type, padded, matrix.columns) >>> 0));
  }
  for (const { name } of vectors(blueprint)) weights.set(name, arena.take(shape.width * floatBytes));

  const kvPageBytes = kernels.kvPageBytes(blueprint.kvType, shape.kvHeads, shape.headLength, blueprint.blockTokens);
  const kvLayerBytes = kvPageBytes * pagesPerThread;
  const kv = arena.take(kvLayerBytes * kvLayers(blueprint));

  const attentionWidth = shape.heads * shape.headLength;
  const classifier = blueprint.mixture?.classifier ?? [];
  const joinedWidth = Math.max(
    attentionWidth + 2 * shape.kvHeads * shape.headLength,
    shape.feedForward,
    shape.width,
    ...classifier.map(({ rows }) => rows),
  );
  const inner = classifier.map(({ columns }) => columns);
  const widestInput = Math.max(shape.width, attentionWidth, shape.feedForward, ...inner);
  const rows = (floats: number) => arena.take(passTokens * floats * floatBytes);
  const types = new Set(matrices(blueprint).map(({ tensor }) => tensor.type));
  const preparedBytes = Math.max(...[...types].map((type) => kernels.activationBytes(type, passTokens, widestInput)));
  const slab = slabBytes(blueprint, divided);
  const pageListBytes = maxRows * Math.ceil(blocksPerSequence / threads) * 8;
  const scratch = arena.used;
  const memory = {
    weights,
    kv,
    kvPageBytes,
    kvLayerBytes,
    hidden: rows(shape.width),
    input: rows(Math.max(shape.width, attentionWidth)),
    prepared: arena.take(preparedBytes),
    joined: rows(joinedWidth),
    slabs: arena.take(slab * threads),
    slabBytes: slab,
    gated: arena.take(slab),
    logits: arena.take(maxOutputs * (divided.output[thread] as Share).stride * floatBytes),
    rotation: rows(shape.rotated),
    pageList: arena.take(pageListBytes),
    pageListBytes,
    adapters: layOutScratch(blueprint, (bytes) => arena.take(bytes)),
    staging: scratch,
    stagingBytes: Math.max(stagingBytes, longestPanelBytes(blueprint)),
  };
  const end = Math.max(arena.used, scratch + memory.stagingBytes);
  if (end > longestMemoryBytes) throw tooLarge(blueprint, end);
  return { ...memory, wasmPages: Math.ceil(end / wasmPageBytes) };
}

/** What a thread holds of every matrix, in the order of use; a tied output comes twice. */
export function threadPieces(divided: DividedGraph, thread: number): Piece[] {
  const steps = divided.layers.flat().flatMap((step) => stepShares(step));
  return [divided.embedding, ...steps, divided.output].flatMap((shares) => (shares[thread] as Share).pieces);
}

/** What it holds of a mixture's classifier. */
export function classifierPieces({ classifier }: DividedGraph, thread: number): Piece[] {
  return classifier.flatMap((shares) => (shares[thread] as Share).pieces);
}

/** Every matrix of the graph, and of a mixture's classifier. */
function matrices({ graph, mixture }: Blueprint) {
  const steps = graph.layers.flat().flatMap((step) => {
    if (step.kind === "attention") return [step.query, step.key, step.value, step.output];
    return step.kind === "feedForward" ? [step.gate, step.up, step.down] : [];
  });
  return [graph.embedding, graph.output, ...steps, ...(mixture?.classifier ?? [])];
}

/** Every vector of the graph. */
export function vectors({ graph }: Blueprint) {
  const norms = graph.layers.flat().flatMap((step) => (step.kind === "norm" ? [step.weight] : []));
  return [graph.outputNorm, ...norms];
}

/** File bytes of the fewest rows that can be packed at once. */
function longestPanelBytes(blueprint: Blueprint): number {
  return Math.max(...matrices(blueprint).map(({ tensor, rows }) => Math.ceil((tensor.bytes / rows) * 16)));
}

function stepShares(step: DividedStep): readonly (readonly Share[])[] {
  if (step.kind === "attention") return [step.input, step.output];
  return step.kind === "feedForward" ? [step.gate, step.up, step.down] : [];
}

function sharesOf(step: DividedStep): readonly Share[] {
  return stepShares(step).flat();
}

function tooLarge({ threads, pagesPerThread }: Blueprint, bytes: number): ServerError {
  const gib = (bytes / 2 ** 30).toFixed(1);
  return new ServerError(
    "config_invalid",
    `the model's share of each of ${threads} compute threads is ${gib} GiB (with ${pagesPerThread} pages of KV cache); a ` +
      "WebAssembly memory ends at 4 GiB: raise threads, lower kv_cache or max_seqs, or use --engine llama",
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
