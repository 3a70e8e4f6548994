// Adapter packing: converts the values of a prepared adapter to the kernels' format, in the memories of all compute
// threads while these threads compute. It writes only into the block of the new adapter, which no thread reads yet.
// Runs on the loader thread.
//
// A value of A or B is stored as a 16-bit integer. In each row of A and each column of B, the largest magnitude becomes
// 32767, so the largest values are more precise than in the F16 source. Each rank has one scale, which is the product
// of the scales of its row of A and its column of B.
import { closeSync, openSync, readSync } from "node:fs";
import type { TensorInfo } from "../../files/gguf/tensors.ts";
import { halfValues } from "../../files/lora/half-floats.ts";
import { type AdapterFile, type AdapterPair, loadFailed, ranksOf, stackedRanks } from "./file.ts";
import {
  type AdapterLayout,
  layOutAdapter,
  type MatrixLayout,
  type SiteLayout,
  tileRows,
  writeTable,
} from "./layout.ts";
import type { AdapterSite } from "./sites.ts";

/** Target of packing: the memory of a thread, and the adapter's address in this memory. */
export interface AdapterTarget {
  readonly memory: SharedArrayBuffer;
  readonly address: number;
}

const largestInteger = 32_767;
/**
 * `tileColumns`: number of adjacent values of one row of A that a tile stores together. `panelRows`: number of rows in a
 * panel of B. kernels/adapters.ts defines both formats.
 */
const tileColumns = 4;
const panelRows = 16;
/** Exponent bits of an F16 infinity or NaN. */
const infinity = 0x7c00;

/** Block of an adapter in one thread's memory, with the views through which packing writes it. */
interface Block {
  readonly layout: AdapterLayout;
  readonly integers: Int16Array;
  readonly floats: Float32Array;
}

/**
 * Packs files as one stacked adapter: in each matrix, the ranks of a file follow those of the previous file.
 * `blockBytes` is the size of the adapter in each memory.
 */
export function packAdapter(
  files: readonly AdapterFile[],
  sites: readonly AdapterSite[],
  blockBytes: number,
  targets: readonly AdapterTarget[],
): void {
  const ranks = stackedRanks(files.map(ranksOf));
  const blocks = targets.map(({ memory, address }, thread): Block => {
    const layout = layOutAdapter(sites, ranks, thread, targets.length);
    new Uint8Array(memory, address, blockBytes).fill(0);
    writeTable(layout, new Int32Array(memory, address, blockBytes / Int32Array.BYTES_PER_ELEMENT), address);
    return {
      layout,
      integers: new Int16Array(memory, address, blockBytes / Int16Array.BYTES_PER_ELEMENT),
      floats: new Float32Array(memory, address, blockBytes / Float32Array.BYTES_PER_ELEMENT),
    };
  });
  const ranksBefore = ranks.map((site) => site.map(() => 0));
  for (const file of files) packFile(file, ranksBefore, blocks);
}

/**
 * Packs one file. Its ranks follow the ranks of previous files, whose number per matrix is in `ranksBefore`. Adds the
 * file's ranks to `ranksBefore`.
 */
function packFile({ path, pairs }: AdapterFile, ranksBefore: readonly number[][], blocks: readonly Block[]): void {
  const descriptor = openSync(path, "r");
  try {
    for (const [number, site] of pairs.entries()) {
      const before = ranksBefore[number] as number[];
      for (const [matrix, pair] of site.entries()) {
        if (!pair) continue;
        packPair(pair, { number, matrix, ranksBefore: before[matrix] as number }, descriptor, blocks);
        before[matrix] = (before[matrix] as number) + pair.rank;
      }
    }
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Matrix that a pair of LoRA matrices A and B changes. `number`: index of the matrix's site. `matrix`: index of the
 * matrix in the site. `ranksBefore`: number of ranks that previous files have packed for this matrix.
 */
interface PairTarget {
  readonly number: number;
  readonly matrix: number;
  readonly ranksBefore: number;
}

function packPair(
  pair: AdapterPair,
  { number, matrix, ranksBefore }: PairTarget,
  descriptor: number,
  blocks: readonly Block[],
): void {
  const { rank } = pair;
  const [columns = 1] = pair.a.shape;
  const a = readHalves(descriptor, pair.a);
  const b = readHalves(descriptor, pair.b);
  const rows = Array.from({ length: rank }, (_, r) => a.subarray(r * columns, (r + 1) * columns));
  const largestA = Float64Array.from(rows, largestOf);
  const largestB = largestOfColumns(b, rank);
  for (const [thread, { layout, integers, floats }] of blocks.entries()) {
    const site = layout.sites[number] as SiteLayout;
    const ofMatrix = site.matrices[matrix] as MatrixLayout;
    for (const [r, values] of rows.entries()) {
      const row = ofMatrix.firstRank + ranksBefore + r - thread * site.share;
      if (row < 0 || row >= site.ownRows) continue;
      const scale = ((largestA[r] as number) / largestInteger) * ((largestB[r] as number) / largestInteger);
      floats[site.scales / Float32Array.BYTES_PER_ELEMENT + row] = scale;
      packRow(values, integerFactor(largestA[r] as number), integers, site.values, row);
    }
    packColumns(b, largestB.map(integerFactor), ranksBefore, ofMatrix, integers);
  }
}

/** Packs one row of A. `address`: start of the rows of A that the thread multiplies. `row`: index of the row among them. */
function packRow(values: Float32Array, factor: number, out: Int16Array, address: number, row: number): void {
  const at = address / Int16Array.BYTES_PER_ELEMENT + (row % tileRows) * tileColumns;
  const tile = at + Math.floor(row / tileRows) * tileRows * values.length;
  for (let column = 0; column < values.length; column += tileColumns) {
    const to = tile + column * tileRows;
    for (let i = 0; i < tileColumns; i++) out[to + i] = Math.round((values[column + i] as number) * factor);
  }
}

/**
 * Packs B's values for the thread's rows of a matrix. Each rank has its own factor; factors[0] belongs to rank
 * `firstRank`.
 */
function packColumns(
  b: Float32Array,
  factors: Float64Array,
  firstRank: number,
  { ranks, values, piece }: MatrixLayout,
  out: Int16Array,
): void {
  if (!piece) return;
  const at = values / Int16Array.BYTES_PER_ELEMENT + firstRank * panelRows;
  let from = piece.firstRow * factors.length;
  for (let row = 0; row < piece.rows; row++) {
    let to = at + Math.floor(row / panelRows) * panelRows * ranks + (row % panelRows);
    for (let r = 0; r < factors.length; r++) {
      out[to] = Math.round((b[from++] as number) * (factors[r] as number));
      to += panelRows;
    }
  }
}

function largestOf(values: Float32Array): number {
  let largest = 0;
  for (let i = 0; i < values.length; i++) largest = Math.max(largest, Math.abs(values[i] as number));
  return largest;
}

/** Returns the largest magnitude in each column of a matrix with `columns` columns. */
function largestOfColumns(values: Float32Array, columns: number): Float64Array {
  const largest = new Float64Array(columns);
  for (let i = 0; i < values.length; ) {
    for (let c = 0; c < columns; c++) {
      largest[c] = Math.max(largest[c] as number, Math.abs(values[i++] as number));
    }
  }
  return largest;
}

function integerFactor(largest: number): number {
  return largest === 0 ? 0 : largestInteger / largest;
}

/** Reads an F16 tensor and returns its values. */
function readHalves(descriptor: number, { name, offset, bytes }: TensorInfo): Float32Array {
  const bits = new Uint16Array(bytes / Uint16Array.BYTES_PER_ELEMENT);
  const target = new Uint8Array(bits.buffer);
  for (let done = 0; done < bytes; ) {
    const count = readSync(descriptor, target, done, bytes - done, offset + done);
    if (count === 0) throw loadFailed(`ends inside tensor "${name}"`);
    done += count;
  }
  const halves = halfValues();
  const values = new Float32Array(bits.length);
  for (let i = 0; i < bits.length; i++) {
    const half = bits[i] as number;
    if ((half & infinity) === infinity) throw loadFailed(`holds a NaN or an infinity in tensor "${name}"`);
    values[i] = halves[half] as number;
  }
  return values;
}
